"""What each operation does to distances, to intervals and to rounding: its transfer function.

One table, by the name of the ATen operation or of the class of a module that is taken whole, says
how a change of an operation's inputs becomes a change of its output, and by how much the computed
output can differ from the exact one. Lipschitz constants, intervals, linear bounds and rounding
errors are all read from it: a new operation is one entry.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from rankscope.reading.exporting import Shape
from rankscope.reading.layers import per_axis
from rankscope.reading.trace import Value, is_random
from rankscope.robust.curves import (
    BENDS,
    CURVES,
    POSITIVE,
    read_curve,
    read_exponential,
    read_exponential_unit,
    read_gelu,
    read_leaky,
    read_normalization,
    read_positive,
    read_power,
    read_prelu,
    read_softmax,
    read_softplus,
)
from rankscope.robust.forms import (
    PRODUCT,
    QUOTIENT,
    Affine,
    Form,
    Increasing,
    Largest,
    TransferFunction,
    Unshaped,
    known_growth,
    no_growth,
    relative,
    repeats,
)
from rankscope.robust.graph import Graph, Node, Reading, sample_shape
from rankscope.robust.linear_maps import (
    CONVOLUTIONS,
    FACTORIZED,
    read_batch_norm,
    read_convolution,
    read_layer,
    read_linear,
    read_matmul,
    read_scores,
    read_sums,
)
from rankscope.robust.norm_preserving import GroupSort, HouseholderActivation, MaxMin
from rankscope.robust.operator_norms import ORTHOGONAL
from rankscope.robust.relaxations import Smooth, product, quotient
from rankscope.robust.rounding import LIBRARY, Rounding, above


def read_transfer_functions(
    model: nn.Module,
    input_shape: Shape,
    *,
    precise: bool = False,
    reader: str = "lipschitz_bound",
) -> tuple[Graph, tuple[TransferFunction, ...]]:
    """A model's operations, and what each of them does to a change of its inputs.

    Args:
        model: in any mode; it is not changed.
        input_shape: of one sample.
        precise: whether operations compute in float64, on the weights of the model's own floats.
        reader: who asks, as a user calls it; refusals begin with it.

    Raises:
        UnsupportedModuleError: if one of them is not known, with its name and the reason, or the
            model takes samples together, is random or looks at numbers.
        SizeError: if the model does not take such inputs.
    """
    read = Reading(model, input_shape, wholes=_is_taken_whole, precise=precise, reader=reader)
    # What has no rule is refused first: of attention, the product says more than the axes.
    for node in read.nodes:
        if node.kind not in _RULES:
            raise node.refusal(_reason(node))
    graph = read.graph()
    return graph, tuple(map(_transfer, graph.nodes))


def _transfer(node: Node) -> TransferFunction:
    if node.kind not in _RULES:
        raise node.refusal(_reason(node))
    return _RULES[node.kind](node)


def _reason(node: Node) -> str:
    if node.kind in _REASONS:
        return _REASONS[node.kind]
    if is_random(node.source):
        return "it is random in inference mode, so that nothing can be said about outputs"
    return "its Lipschitz constant is not known here"


# --- Sums, products with numbers, entries moved around ---------------------------------------


def _read_sum(node: Node) -> TransferFunction:
    """Sums and differences of values and fixed tensors."""
    alpha = abs(float(node["alpha"]))
    terms = (node["self"], 1.0), (node["other"], alpha)
    if node.kind == "rsub":
        terms = (node["self"], alpha), (node["other"], 1.0)
    weights = [weight for given, weight in terms if isinstance(given, Value)]
    growth = (above(w * repeats(node, v), 4) for w, v in zip(weights, node.inputs, strict=True))
    size = sample_shape(node.output)
    fixed = [w * torch.as_tensor(g).double().abs() for g, w in terms if not isinstance(g, Value)]
    offset: Tensor | float = sum(fixed) if fixed else 0.0
    if isinstance(offset, Tensor) and offset.ndim > len(size):
        offset = offset[0]  # for one sample

    def spread(*radii: Tensor) -> Tensor:
        zeros: Tensor = radii[0].new_zeros(len(radii[0]), *size)
        return sum((w * r for w, r in zip(weights, radii, strict=True)), zeros)

    return TransferFunction(
        "sum", known_growth(*growth), Affine(spread), rounding=Rounding(3, spread, offset)
    )


def _read_scaling(node: Node) -> TransferFunction:
    """Products and quotients with fixed numbers, and of two values."""
    first, second = node["self"], node["other"]
    is_quotient = node.kind == "div"
    if is_quotient and node.arguments.get("rounding_mode") is not None:
        raise node.refusal("rounding jumps")
    if is_quotient and isinstance(second, Value):
        return _quotient_of_values(node)
    if len(node.inputs) != 1:
        return TransferFunction(
            "product of two values",
            no_growth(node, "both sides depend on the input, so that nothing bounds it"),
            product(node.run, node.run),
            rounding=Rounding(2, node.run),
        )
    factor = torch.as_tensor(second if isinstance(first, Value) else first).double()
    factor = (1 / factor if is_quotient else factor).abs()
    size = sample_shape(node.output)
    if factor.ndim > len(size):
        factor = factor[0]  # for one sample

    def spread(radii: Tensor) -> Tensor:
        return radii * factor.to(radii)

    largest = above(float(factor.max()) * repeats(node, node.inputs[0]), 8)
    return TransferFunction(
        "largest factor", known_growth(largest), Affine(spread), rounding=Rounding(4, spread)
    )


def _quotient_of_values(node: Node) -> TransferFunction:
    refused = no_growth(node, QUOTIENT)
    if isinstance(node["self"], Value) and len(node.inputs) == 2:
        form = Smooth(quotient, lambda inputs: quotient(inputs)[1].abs(), None)
        return TransferFunction("quotient of two values", refused, form, rounding=relative(2))
    raise node.refusal("a fixed number over a value is read as its reciprocal only")


def _read_choice(node: Node) -> TransferFunction:
    """Entries of values or fixed numbers, by a fixed condition."""
    if isinstance(node["condition" if node.kind == "where" else "mask"], Value):
        raise node.refusal("its condition depends on the input, so that it may jump")
    growth = known_growth(*(above(repeats(node, value), 4) for value in node.inputs))
    return TransferFunction(
        "entries chosen", growth, Affine(_linear_part(node)), is_move=True, has_constants=True
    )


def _read_negation(node: Node) -> TransferFunction:
    """A change of sign."""
    del node
    return TransferFunction("sign", known_growth(1.0), Affine(lambda radii: radii))


def _read_joining(node: Node) -> TransferFunction:
    """Values side by side, or one written into a part of another."""
    growth = known_growth(*[1.0] * len(node.inputs))
    return TransferFunction(
        "side by side",
        growth,
        Affine(_linear_part(node)),
        is_joint=True,
        is_move=True,
        has_constants=_has_constants(node),
    )


def _has_constants(node: Node) -> bool:
    zeros = (torch.zeros(1, *sample_shape(value), dtype=value.dtype) for value in node.inputs)
    return bool(node.run(*zeros).any())


def _read_constant(node: Node) -> TransferFunction:
    """A tensor made in the shape of a value, whatever its numbers are."""
    size = sample_shape(node.output)
    return TransferFunction(
        "fixed",
        known_growth(0.0),
        Affine(lambda radii: radii.new_zeros(len(radii), *size)),
        is_move=True,
        has_constants=True,
    )


def _read_average(node: Node) -> TransferFunction:
    r"""Sums of entries with weights that are not negative, and entries moved around.

    The norm of such a matrix is at most :math:`\sqrt{\text{largest sum of a row} \cdot
    \text{largest sum of a column}}`, which is exact for averages over blocks and for copies.
    """
    if len(node.inputs) != 1:
        raise node.refusal("it takes more than one value that depends on the input")
    return TransferFunction(
        "sums of rows and columns",
        lambda: (_row_and_column_sums(node),),
        Affine(_linear_part(node)),
        is_selection=node.kind in _SELECTIONS,
        rounding=_average_rounding(node),
        is_move=node.kind in _MOVES and node.kind != "to",
        has_constants=node.kind in ("pad", "constant_pad_nd") and _has_constants(node),
    )


def _average_rounding(node: Node) -> Rounding | None:
    if node.kind == "to":
        return Rounding(1, lambda sizes: sizes)
    if node.kind not in _MEANS:
        return None
    before, after = sample_shape(node.inputs[0]), sample_shape(node.output)
    if node.kind.startswith("avg_pool"):
        count = math.prod(per_axis(node["kernel_size"], 1 if node.kind == "avg_pool1d" else 2))
    elif node.kind.startswith("adaptive"):
        axes = 1 if node.kind == "adaptive_avg_pool1d" else 2
        windows = zip(before[-axes:], after[-axes:], strict=True)
        count = math.prod(math.ceil(n / m) + 1 for n, m in windows)
    else:
        count = math.prod(before) // max(1, math.prod(after))
    return Rounding(count + 3, _linear_part(node), is_sum=True)


def _linear_part(node: Node) -> Callable[..., Tensor]:
    return lambda *radii: node.run(*radii) - node.run(*map(torch.zeros_like, radii))


def _row_and_column_sums(node: Node) -> float:
    zeros = torch.zeros(1, *sample_shape(node.inputs[0]), dtype=torch.float64)
    outputs, pull_back = torch.func.vjp(node.run, zeros)[:2]
    rows = node.run(torch.ones_like(zeros)) - outputs
    (columns,) = pull_back(torch.ones_like(outputs))
    terms = zeros.numel() + outputs.numel()
    return above(math.sqrt(float(rows.max()) * float(columns.max())), terms)


_SELECTIONS = (
    *("chunk", "split", "tensor_split", "split_with_sizes"),
    *("narrow", "slice", "select", "unbind"),
)
_MOVES = (
    *("view", "reshape", "flatten", "unflatten", "squeeze", "unsqueeze", "expand"),
    *("permute", "transpose", "t", "movedim", "roll", "flip", "pad", "constant_pad_nd"),
    *("pixel_shuffle", "pixel_unshuffle", "channel_shuffle", "to", *_SELECTIONS),
    *("repeat", "index_select"),
)
_MEANS = (
    *("avg_pool1d", "avg_pool2d", "adaptive_avg_pool1d", "adaptive_avg_pool2d", "mean", "sum"),
)


# --- Activations, sorting and pooling --------------------------------------------------------


def _read_extreme(node: Node) -> TransferFunction:
    """The larger or smaller of two, or of all along axes."""
    form: Form = Largest() if node.kind in ("maximum", "amax") else Increasing()
    if node.kind in ("maximum", "minimum") and any(
        value.shape != node.output.shape for value in node.inputs
    ):
        raise node.refusal("values of different shapes are not read")
    growth = known_growth(*[1.0] * len(node.inputs))
    return TransferFunction("one entry each", growth, form, is_joint=True)


def _read_max_pool(node: Node) -> TransferFunction:
    """The largest of each window; an entry can be that of every window that it lies in."""
    axes = 1 if node.kind == "max_pool1d" else 2
    kernel = per_axis(node["kernel_size"], axes)
    stride = per_axis(node["stride"] or kernel, axes)
    dilation = per_axis(node["dilation"], axes)
    windows = math.prod(
        math.ceil(k / (s // math.gcd(s, d)))
        for k, s, d in zip(kernel, stride, dilation, strict=True)
    )
    growth = known_growth(math.sqrt(windows))
    return TransferFunction(f"entries in {windows} windows", growth, Largest())


def _read_sorting(node: Node) -> TransferFunction:
    del node
    return TransferFunction("sorts entries", known_growth(1.0), Increasing())


def _read_reflection(node: Node) -> TransferFunction:
    """A reflection, taken on the wrong side only where it moves by no more than rounding."""
    del node
    rounding = Rounding(2 * LIBRARY, lambda sizes: sizes + sizes.roll(sizes.shape[1] // 2, 1))
    return TransferFunction(
        "reflects, or does not", known_growth(1.0), Unshaped(), rounding=rounding
    )


# --- The table -------------------------------------------------------------------------------


# Modules whose parts, one by one, say less than the whole.
_LAYERS = (nn.Conv1d, nn.Conv2d, *ORTHOGONAL, *FACTORIZED)
_SORTING = (MaxMin, GroupSort)


def _is_taken_whole(module: nn.Module) -> bool:
    # A convolution that pads by anything but zeros is two operations, and one circle.
    if isinstance(module, (nn.Conv1d, nn.Conv2d)):
        return module.padding_mode != "zeros"
    wholes = (*ORTHOGONAL, *FACTORIZED, *_SORTING, HouseholderActivation)
    return isinstance(module, wholes)


_RULES: dict[str, Callable[[Node], TransferFunction]] = {
    **{module.__name__: read_layer for module in _LAYERS},
    **dict.fromkeys(CONVOLUTIONS, read_convolution),
    "linear": read_linear,
    **dict.fromkeys(("matmul", "mm", "bmm"), read_matmul),
    "attention_scores": read_scores,
    "attention_weights": read_softmax,
    "attention_sums": read_sums,
    "batch_norm": read_batch_norm,
    **dict.fromkeys(("add", "sub", "rsub"), _read_sum),
    **dict.fromkeys(("mul", "div"), _read_scaling),
    "neg": _read_negation,
    **dict.fromkeys(("cat", "stack", "slice_scatter"), _read_joining),
    **dict.fromkeys(("zeros_like", "ones_like", "full_like"), _read_constant),
    **dict.fromkeys(("new_zeros", "new_ones", "new_full"), _read_constant),
    **dict.fromkeys((*_MOVES, *_MEANS), _read_average),
    **dict.fromkeys((*CURVES, *BENDS), read_curve),
    "gelu": read_gelu,
    "softplus": read_softplus,
    "softmax": read_softmax,
    "exp": read_exponential,
    **dict.fromkeys(("pow", "square"), read_power),
    **dict.fromkeys(POSITIVE, read_positive),
    **dict.fromkeys(("layer_norm", "rms_norm"), read_normalization),
    **dict.fromkeys(("where", "masked_fill"), _read_choice),
    "leaky_relu": read_leaky,
    "prelu": read_prelu,
    **dict.fromkeys(("elu", "celu"), read_exponential_unit),
    **dict.fromkeys(("maximum", "minimum", "amax", "amin"), _read_extreme),
    **dict.fromkeys(("max_pool1d", "max_pool2d"), _read_max_pool),
    **{module.__name__: _read_sorting for module in _SORTING},
    HouseholderActivation.__name__: _read_reflection,
}

_DEVIATION = "it divides by the deviation of its input, which may be as small as it likes"
# Why an operation has no rule, where more can be said than that.
_REASONS = {
    **dict.fromkeys(("einsum", "baddbmm", "bilinear"), PRODUCT),
    **dict.fromkeys(("lstm", "gru", "rnn_tanh", "rnn_relu"), f"gates and states: {PRODUCT}"),
    "native_layer_norm": _DEVIATION,
    **dict.fromkeys(("group_norm", "native_group_norm", "instance_norm"), _DEVIATION),
    "_native_batch_norm_legit": (
        "it takes samples together: it divides by the deviation of the batch itself"
    ),
    "normalize": "it divides by the norm of its input, which may be as small as it likes",
}
