"""Families of transformers: how each writes down its sizes, and which tensors follow from them."""
