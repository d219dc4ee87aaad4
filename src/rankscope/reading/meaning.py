"""What each ATen operation means for diagrams: one table.

`RULES` has a rule for every kind of operation that can be a contraction, a sum, a region or only
another look at the same numbers. What has no rule, or whose rule declines, is called as it is:
`MOVES` are the kinds that only move numbers or are linear in them, all others are opaque.
"""

from collections.abc import Mapping

from rankscope.reading import arithmetic, calls, layers, looks, products
from rankscope.reading.rules import Reader

RULES: Mapping[str, Reader] = {
    # Other looks at the same numbers.
    **dict.fromkeys(
        (
            "alias",
            "clone",
            "contiguous",
            "detach",
            "identity",
            "lift_fresh_copy",
            "to",
            "type_as",
        ),
        looks.read_same,
    ),
    **dict.fromkeys(
        ("view", "reshape", "flatten", "unflatten", "view_as", "reshape_as"), looks.read_shape
    ),
    "permute": looks.read_permute,
    **dict.fromkeys(("transpose", "t", "swapaxes", "swapdims"), looks.read_transpose),
    "unsqueeze": looks.read_unsqueeze,
    "squeeze": looks.read_squeeze,
    **dict.fromkeys(("expand", "expand_as", "broadcast_to"), looks.read_expand),
    "slice": looks.read_slice,
    "select": looks.read_select,
    **dict.fromkeys(
        ("split", "split_with_sizes", "chunk", "unbind", "tensor_split"), looks.read_split
    ),
    # Arithmetic.
    **dict.fromkeys(("add", "sub", "rsub"), arithmetic.read_add),
    "mul": arithmetic.read_multiply,
    "div": arithmetic.read_divide,
    "neg": arithmetic.read_negate,
    "pow": arithmetic.read_power,
    "square": arithmetic.read_square,
    "addcmul": arithmetic.read_add_product,
    **dict.fromkeys(("mean", "sum"), arithmetic.read_mean),
    "linalg_vector_norm": arithmetic.read_norm,
    # Products of tensors.
    "linear": products.read_linear,
    "addmm": products.read_addmm,
    **dict.fromkeys(("matmul", "mm", "bmm", "mv", "dot"), products.read_matrix_product),
    "einsum": products.read_einsum,
    "embedding": products.read_embedding,
    # Functions.
    **dict.fromkeys(arithmetic.FUNCTIONS, arithmetic.read_function),
    "elu": arithmetic.read_elu,
    **dict.fromkeys(("softmax", "log_softmax"), arithmetic.read_softmax),
    "masked_fill": products.read_masked_fill,
    "scaled_dot_product_attention": products.read_attention,
    # Layers.
    **dict.fromkeys(("conv1d", "conv2d", "conv3d", "convolution"), layers.read_convolution),
    **dict.fromkeys(
        ("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"), layers.read_transposed
    ),
    **dict.fromkeys(("avg_pool1d", "avg_pool2d", "avg_pool3d"), layers.read_average_pool),
    **dict.fromkeys(
        ("adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d"),
        layers.read_adaptive_pool,
    ),
    "layer_norm": layers.read_layer_norm,
    "rms_norm": layers.read_rms_norm,
    "group_norm": layers.read_group_norm,
    "instance_norm": layers.read_instance_norm,
    "batch_norm": layers.read_batch_norm,
    # Recurrences.
    **dict.fromkeys(calls.EQUATIONS, calls.read_recurrence),
}

# Called as they are, but exact: they move numbers, fill in fixed ones, or are linear.
MOVES = frozenset(
    (
        "_to_copy",
        "adaptive_avg_pool1d",
        "adaptive_avg_pool2d",
        "adaptive_avg_pool3d",
        "as_strided",
        "avg_pool1d",
        "avg_pool2d",
        "avg_pool3d",
        "cat",
        "clone",
        "constant_pad_nd",
        "copy",
        "cumsum",
        "diagonal",
        "expand",
        "flip",
        "im2col",
        "col2im",
        "index",
        "index_select",
        "masked_fill",
        "movedim",
        "narrow",
        "pad",
        "pixel_shuffle",
        "pixel_unshuffle",
        "channel_shuffle",
        "reflection_pad1d",
        "reflection_pad2d",
        "repeat",
        "repeat_interleave",
        "replication_pad2d",
        "roll",
        "select",
        "select_scatter",
        "slice",
        "slice_scatter",
        "split",
        "split_with_sizes",
        "chunk",
        "unbind",
        "stack",
        "to",
        "tril",
        "triu",
        "unfold",
        "upsample_bicubic2d",
        "upsample_bilinear2d",
        "upsample_linear1d",
        "upsample_nearest1d",
        "upsample_nearest2d",
        "upsample_nearest3d",
        "upsample_trilinear3d",
        "where",
        "full_like",
        "zeros_like",
        "ones_like",
        "new_zeros",
        "new_ones",
        "empty_like",
    )
)
