"""What each ATen operation means for diagrams: one table.

`RULES` has a rule for every kind of operation that can be a contraction, a sum, a region or only
another look at the same numbers. What has no rule, or whose rule declines, is called as it is:
`MOVES` are the kinds that only move numbers or are linear in them, all others are opaque.
"""

from collections.abc import Mapping

from rankscope.reading import layers, rules
from rankscope.reading.rules import FUNCTIONS, Reader

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
        rules.read_same,
    ),
    **dict.fromkeys(("dropout", "native_dropout", "feature_dropout"), rules.read_dropout),
    **dict.fromkeys(
        ("view", "reshape", "flatten", "unflatten", "view_as", "reshape_as"), rules.read_shape
    ),
    "permute": rules.read_permute,
    **dict.fromkeys(("transpose", "t", "swapaxes", "swapdims"), rules.read_transpose),
    "unsqueeze": rules.read_unsqueeze,
    "squeeze": rules.read_squeeze,
    **dict.fromkeys(("expand", "expand_as", "broadcast_to"), rules.read_expand),
    "slice": rules.read_slice,
    "select": rules.read_select,
    **dict.fromkeys(
        ("split", "split_with_sizes", "chunk", "unbind", "tensor_split"), rules.read_split
    ),
    # Arithmetic.
    **dict.fromkeys(("add", "sub", "rsub"), rules.read_add),
    "mul": rules.read_multiply,
    "div": rules.read_divide,
    "neg": rules.read_negate,
    "pow": rules.read_power,
    "square": rules.read_square,
    "addcmul": rules.read_add_product,
    **dict.fromkeys(("mean", "sum"), rules.read_mean),
    "linalg_vector_norm": rules.read_norm,
    # Products of tensors.
    "linear": rules.read_linear,
    "addmm": rules.read_addmm,
    **dict.fromkeys(("matmul", "mm", "bmm", "mv", "dot"), rules.read_matrix_product),
    "einsum": rules.read_einsum,
    "embedding": rules.read_embedding,
    # Functions.
    **dict.fromkeys(FUNCTIONS, rules.read_function),
    "elu": rules.read_elu,
    **dict.fromkeys(("softmax", "log_softmax"), rules.read_softmax),
    "masked_fill": rules.read_masked_fill,
    "scaled_dot_product_attention": rules.read_attention,
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
