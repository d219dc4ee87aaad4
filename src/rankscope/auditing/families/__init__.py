"""Configurations of model families as lists of expected tensors."""
