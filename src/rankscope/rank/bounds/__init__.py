"""Bounds on separation ranks; every bound carries its theorem."""
