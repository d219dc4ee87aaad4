"""Measuring a rank: samples that grow, tiles, workers, checkpoints, and the result."""
