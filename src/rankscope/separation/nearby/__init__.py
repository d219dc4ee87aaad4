"""The least rank within a distance of a matrix or a function."""
