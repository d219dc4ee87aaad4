"""Convolutions that preserve norms, from paraunitary factors.

`OrthogonalKernel` turns free parameters into the kernel of a norm-preserving convolution;
`OrthogonalConv1d`, `OrthogonalConv2d` and their transposed forms use it like PyTorch's layers.

    layer = OrthogonalConv2d(64, 64, 3)        # |layer(x)| = |x|, circular padding
    layer.to_conv2d()                          # the same as a plain convolution
"""
