"""Linear and bilinear layers, and embeddings."""

from dataclasses import replace

from torch import Tensor, nn

from rankscope.diagrams.parts import Role
from rankscope.diagrams.reading.calls import Call
from rankscope.diagrams.reading.drafts import Draft, Operand
from rankscope.diagrams.reading.labels import weight_label
from rankscope.diagrams.reading.notebook import axis_letters
from rankscope.diagrams.reading.sorts import (
    BATCH,
    FEATURE,
    SEQUENCE,
    VOCABULARY,
)
from rankscope.diagrams.reading.values import Piece, Value, relabelled
from rankscope.errors import UnsupportedModuleError

BIAS_LABEL = r"\mathbf{b}"


def read_linear(call: Call) -> Value:
    r"""Read :math:`Y = X W^\top + 1 b`; the last axis of X may be cut into several indices."""
    layer = call.module
    assert isinstance(layer, nn.Linear)
    weight = call.parameter(layer.weight, (FEATURE, FEATURE))
    bias = None if layer.bias is None else call.parameter(layer.bias, (FEATURE,))
    return linear(call, call.value("input"), weight, bias)


def linear(call: Call, value: Value, weight: Value, bias: Value | None) -> Value:
    """The last axis of a value times a weight of shape (out, in), plus a bias."""
    if not value.axes:
        raise UnsupportedModuleError("its input has no axes, so there is nothing to multiply")
    letters = axis_letters(value)
    output = (*letters[:-1], "out")
    label = weight_label(weight.array)
    operands = (Operand("X", value, letters), Operand("W", weight, ("out", letters[-1]), label))
    drafts = [Draft(operands, output)]
    if bias is not None:
        drafts.append(Draft((Operand("b", bias, ("out",), BIAS_LABEL),), output))
    return call.notebook.compute(call.name, *drafts)


def read_bilinear(call: Call) -> Value:
    r"""Read :math:`y_o = \sum_{ij} x_i W_{oij} z_j + b_o`."""
    layer = call.module
    assert isinstance(layer, nn.Bilinear)
    first, second = call.value("input1"), call.value("input2")
    letters = axis_letters(first)
    output = (*letters[:-1], "out")
    weight = call.parameter(layer.weight, (FEATURE, FEATURE, FEATURE))
    operands = (
        Operand("X", first, (*letters[:-1], "first")),
        Operand("W", weight, ("out", "first", "second"), weight_label(weight.array)),
        Operand("Z", second, (*letters[:-1], "second")),
    )
    drafts = [Draft(operands, output)]
    if layer.bias is not None:
        bias = call.parameter(layer.bias, (FEATURE,))
        drafts.append(Draft((Operand("b", bias, ("out",), BIAS_LABEL),), output))
    return call.notebook.compute(call.name, *drafts)


def read_embedding(call: Call) -> Value:
    """Read a table look-up: a one-hot node times the table."""
    layer = call.module
    assert isinstance(layer, nn.Embedding)
    if layer.max_norm is not None:
        raise UnsupportedModuleError(
            f"max_norm={layer.max_norm} rescales the table while it is used"
        )
    return embed(call, call.parameter(layer.weight, (VOCABULARY, FEATURE)))


def embed(call: Call, table: Value) -> Value:
    """Rows of a table of shape (vocabulary, features), one for each integer of `input`."""
    fixed = call.arguments.get("input")
    if isinstance(fixed, Tensor):
        return _fixed_rows(call, fixed, table)
    tokens = call.value("input")
    made = [step.name for step in call.notebook.steps]
    if tokens.role is not Role.DATA or tokens.factor != 1.0 or tokens.array in made:
        raise UnsupportedModuleError("the integers it looks up must come from an input")
    usual = {1: (SEQUENCE,), 2: (BATCH, SEQUENCE)}.get(len(tokens.axes))
    if usual is not None:
        tokens = relabelled(tokens, usual)
    piece = Piece(table.shape[0], VOCABULARY)
    one_hot = replace(
        tokens,
        stored=(*tokens.stored, piece),
        axes=(*tokens.axes, (piece,)),
        is_one_hot=True,
    )
    letters = axis_letters(one_hot)
    operands = (
        Operand("X", one_hot, letters),
        Operand("E", table, (letters[-1], "out"), r"\mathbf{E}"),
    )
    return call.notebook.compute(call.name, Draft(operands, (*letters[:-1], "out")))


def _fixed_rows(call: Call, positions: Tensor, table: Value) -> Value:
    """Rows for integers that are known, as in a table of positions."""
    flat = [int(position) for position in positions.flatten().tolist()]
    start, stop = flat[0], flat[0] + len(flat)
    if flat != list(range(start, stop)) or not 0 <= start < stop <= table.shape[0]:
        raise UnsupportedModuleError(
            f"fixed integers are read only when they are a run of rows of its {table.shape[0]}, "
            f"got {flat[:4]}…"
        )
    found = call.notebook.narrow(call.inner("copy"), table, 0, (start, stop))
    shaped = call.notebook.reshape(call.inner("copy"), found, (*positions.shape, table.shape[1]))
    return relabelled(shaped, (*[SEQUENCE] * positions.ndim, None))
