r"""What is called as it is although it is known exactly: recurrences, and linear maps.

An LSTM over n positions would be n copies of its cell; it stays one call, which runs as fast as
PyTorch's, is drawn as one box with the equations of its gates below it, and is priced by the
products of its matrices. A linear call that computes (interpolation, pooling) has a count of its
operations here; one that only moves numbers has none.
"""

import math
from collections.abc import Callable, Mapping

from rankscope.reading.drafting import Known
from rankscope.reading.rules import Result, Rule

_INPUT = r"W\,\mathbf{x}_t + \mathbf{b}"
_SUM = r"W\,\mathbf{x}_t + U\,\mathbf{h}_{t-1} + \mathbf{b}"
_LSTM = (
    rf"(\mathbf{{i}}, \mathbf{{f}}, \mathbf{{g}}, \mathbf{{o}}) = {_SUM}",
    r"\mathbf{c}_t = \sigma(\mathbf{f})\,\mathbf{c}_{t-1} + \sigma(\mathbf{i})\,\tanh(\mathbf{g})",
    r"\mathbf{h}_t = \sigma(\mathbf{o})\,\tanh(\mathbf{c}_t)",
)
_GRU = (
    rf"(\mathbf{{r}}, \mathbf{{z}}) = \sigma({_SUM})",
    rf"\mathbf{{n}} = \tanh({_INPUT} + \mathbf{{r}}\,(U\,\mathbf{{h}}_{{t-1}} + \mathbf{{b}}))",
    r"\mathbf{h}_t = (1 - \mathbf{z})\,\mathbf{n} + \mathbf{z}\,\mathbf{h}_{t-1}",
)

EQUATIONS: Mapping[str, tuple[str, ...]] = {
    "lstm": _LSTM,
    "lstm_cell": _LSTM,
    "gru": _GRU,
    "gru_cell": _GRU,
    **dict.fromkeys(("rnn_tanh", "rnn_tanh_cell"), (rf"\mathbf{{h}}_t = \tanh({_SUM})",)),
    **dict.fromkeys(("rnn_relu", "rnn_relu_cell"), (rf"\mathbf{{h}}_t = \mathrm{{ReLU}}({_SUM})",)),
}


def read_recurrence(rule: Rule) -> Result:
    """A recurrence: every matrix of it meets every position once.

    Several layers stand on each other, and a second direction runs from the end; the picture says
    how many there are.
    """
    arguments = rule.operation.arguments
    if arguments.get("train") and arguments.get("dropout"):
        return None  # Random numbers are no equations.
    first = "data" if "data" in arguments else "input"
    positions = math.prod(rule.view(first).shape[:-1])
    params = arguments.get("params") or [arguments["w_ih"], arguments["w_hh"]]
    shapes = [rule.reading.views[param].shape for param in params]
    matrices = sum(math.prod(shape) for shape in shapes if len(shape) == 2)
    equations = (*EQUATIONS[rule.operation.kind], *_structure(rule))
    return rule.call(Known(2 * positions * matrices, equations))


def _structure(rule: Rule) -> tuple[str, ...]:
    count = int(rule.argument("num_layers") or 1)
    words = [f"{count} layers"] if count > 1 else []
    words += ["both directions"] if rule.argument("bidirectional") else []
    text = ", ".join(words).replace(" ", r"\ ")
    return (rf"\mathrm{{{text}}}",) if words else ()


def _per_output(terms: int) -> Callable[[Rule], int]:
    """A product and a sum for each term of every output."""
    return lambda rule: 2 * terms * math.prod(rule.output.shape)


def _window(rule: Rule) -> int:
    """The sum of a window, and one division, for every output."""
    size: int = math.prod(rule.argument("kernel_size"))
    return size * math.prod(rule.output.shape)


def _each_input(rule: Rule) -> int:
    """Every input is added once."""
    return math.prod(rule.view("self").shape)


def _each_input_and_output(rule: Rule) -> int:
    """Every input is added once, and every output divided."""
    return _each_input(rule) + math.prod(rule.output.shape)


OPERATIONS: Mapping[str, Callable[[Rule], int]] = {
    **dict.fromkeys(("avg_pool1d", "avg_pool2d", "avg_pool3d"), _window),
    **dict.fromkeys(
        ("adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d"),
        _each_input_and_output,
    ),
    "col2im": _each_input,
    "cumsum": _each_input,
    "upsample_linear1d": _per_output(2),
    "upsample_bilinear2d": _per_output(4),
    "upsample_trilinear3d": _per_output(8),
    "upsample_bicubic2d": _per_output(16),
}
