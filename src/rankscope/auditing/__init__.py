"""What a model's configuration and weights say about it: findings with numbers and commands."""
