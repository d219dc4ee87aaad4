"""Formats: how a weight is written as cores, each a diagram."""
