"""Measure, draw, audit, shrink and prove things about neural networks."""
