"""The training loop: recipes, checkpoints, several processes."""
