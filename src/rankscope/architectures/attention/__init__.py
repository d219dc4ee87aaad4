"""Softmax-free attention: by its definition, and fast on additive moments."""
