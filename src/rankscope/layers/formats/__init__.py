"""Ways to write a weight as small tensors, and to use it without the weight."""
