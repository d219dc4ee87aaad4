"""Contraction orders: what a merge costs, and ways to find a cheap order."""
