"""Polynomial networks whose separation rank is measured exactly."""
