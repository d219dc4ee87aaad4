"""Exact rank modulo a prime at the speed of float64 linear algebra."""
