"""Networks that no input can be stretched by: each has Lipschitz constant 1 by construction."""
