"""The common language: networks of named tensors that are drawn, priced, cut and run."""
