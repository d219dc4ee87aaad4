"""From a plan to numbers: schedules of operations, and PyTorch carrying them out."""
