"""Run a contraction plan: schedules of operations, and the PyTorch statements they become."""
