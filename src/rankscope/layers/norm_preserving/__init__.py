"""What stands between orthogonal convolutions in a network that no input can be stretched by.

Activations, pooling, skips and linear layers, each with its own Lipschitz constant: 1, except for
`NormalizedLinear` and `InputScaling`, which say theirs.
"""
