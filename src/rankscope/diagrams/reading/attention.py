"""Attention, in one picture where there are no biases."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from torch import Tensor, nn

from rankscope.diagrams.functions import Function
from rankscope.diagrams.reading.arrays import is_causal_mask
from rankscope.diagrams.reading.calls import Call, Unread
from rankscope.diagrams.reading.drafts import Barrier, Draft, Operand
from rankscope.diagrams.reading.sorts import BATCH, FEATURE, HEAD, HEAD_FEATURE, KEY, SEQUENCE, Sort
from rankscope.diagrams.reading.values import Value, permuted, relabelled, unsqueezed
from rankscope.errors import SizeError, UnsupportedModuleError

SOFTMAX = Function("softmax")
SCALE = "D**-0.5"


@dataclass(frozen=True)
class Projection:
    """A weight of shape (heads, head size, features) and a bias of shape (heads, head size)."""

    name: str
    weight: Value
    bias: Value | None

    @property
    def label(self) -> str:
        """TeX for the weight."""
        return rf"\mathcal{{W}}^{{\,{self.name}}}"


def read_attention(call: Call) -> tuple[Value | Unread | None, ...]:
    """Read multi-head attention; its second result, the map of weights, is not a value here."""
    layer = call.module
    assert isinstance(layer, nn.MultiheadAttention)
    _check(call, layer)
    order = len(call.value("query").axes)
    batch_first = layer.batch_first or order == 2
    query, key, value = (
        _inputs(call, name, batch_first=batch_first) for name in ("query", "key", "value")
    )
    causal = _is_causal(call, query.shape[-2], key.shape[-2])
    found = _attend(call, layer, (query, key, value), causal=causal)
    if not batch_first:
        found = permuted(found, (1, 0, 2))
    weights = None if call.arguments.get("need_weights") is False else Unread("attention weights")
    return found, weights


def _check(call: Call, layer: nn.MultiheadAttention) -> None:
    if layer.training and layer.dropout > 0.0:
        call.complain(f"dropout={layer.dropout} is random in training mode; call module.eval()")
    if layer.bias_k is not None or layer.add_zero_attn:
        raise UnsupportedModuleError("add_bias_kv and add_zero_attn lengthen the sequence")
    if call.arguments.get("key_padding_mask") is not None:
        raise UnsupportedModuleError("key_padding_mask depends on the data")


def _inputs(call: Call, name: str, *, batch_first: bool) -> Value:
    """An input in the order (batch, sequence, feature)."""
    value = call.value(name)
    if len(value.axes) not in (2, 3):
        raise SizeError(
            f"{call.name}: attention wants 2 or 3 axes, got {name} of shape {value.shape}."
        )
    if not batch_first:
        value = permuted(value, (1, 0, 2))
    position = SEQUENCE if name == "query" else KEY
    sorts: Sequence[Sort] = (BATCH, position, FEATURE)
    return relabelled(value, sorts[3 - len(value.axes) :])


def _is_causal(call: Call, num_queries: int, num_keys: int) -> bool:
    """Whether the mask that is given is the causal one.

    Raises:
        UnsupportedModuleError: if it is another one.
    """
    mask = call.arguments.get("attn_mask")
    if mask is None:
        return False
    if isinstance(mask, Tensor) and mask.shape[-2:] == (num_queries, num_keys):
        if is_causal_mask(mask, true_is_kept=False):
            return True
        if not mask.any():
            return False
    raise UnsupportedModuleError("attn_mask is read only when it is the causal mask")


def _projections(call: Call, layer: nn.MultiheadAttention) -> tuple[Projection, ...]:
    size, heads = layer.embed_dim, layer.num_heads
    separate = (layer.q_proj_weight, layer.k_proj_weight, layer.v_proj_weight)
    found = []
    for place, name in enumerate("QKV"):
        rows = (place * size, (place + 1) * size)
        if layer.in_proj_weight is not None:
            joint = call.parameter(layer.in_proj_weight, (FEATURE, FEATURE))
            weight = call.notebook.narrow(call.inner("copy"), joint, 0, rows)
        else:
            own = separate[place]
            assert own is not None, "a layer has a joint weight or three of its own"
            weight = call.parameter(own, (FEATURE, FEATURE))
        bias = None
        if layer.in_proj_bias is not None:
            joint = call.parameter(layer.in_proj_bias, (FEATURE,))
            bias = call.notebook.narrow(call.inner("copy"), joint, 0, rows)
            bias = _heads(call, bias, 0, heads)
        found.append(Projection(name, _heads(call, weight, 0, heads), bias))
    return tuple(found)


def _heads(call: Call, value: Value, axis: int, heads: int) -> Value:
    """Cut an axis into (heads, head size), even when there is one head."""
    shape = value.shape
    size = shape[axis] // heads
    cut = call.notebook.reshape(
        call.inner("copy"), value, (*shape[:axis], heads, size, *shape[axis + 1 :])
    )
    sorts: list[Sort | None] = [None] * len(cut.axes)
    sorts[axis : axis + 2] = [HEAD, HEAD_FEATURE]
    return relabelled(cut, sorts)


def _attend(
    call: Call, layer: nn.MultiheadAttention, inputs: tuple[Value, ...], *, causal: bool
) -> Value:
    batch = ("batch",) if len(inputs[0].axes) == 3 else ()
    legs = (("query", "from_q", "inner"), ("key", "from_k", "inner"), ("key", "from_v", "outer"))
    parts = [
        _projected(call, projection, value, (*batch, *letters))
        for projection, value, letters in zip(_projections(call, layer), inputs, legs, strict=True)
    ]
    weight = call.parameter(layer.out_proj.weight, (FEATURE, FEATURE))
    out = Operand(
        "WO",
        _heads(call, weight, 1, layer.num_heads),
        ("out", "head", "outer"),
        r"\mathcal{W}^{\,O}",
    )
    operands = (*parts[0], *reversed(parts[1]), *reversed(parts[2]), out)
    barrier = Barrier(
        "A",
        tuple(operand.name for operand in operands[: len(parts[0]) + len(parts[1])]),
        SOFTMAX,
        ("key",),
        None if layer.head_dim == 1 else SCALE,
        ("query", "key") if causal else None,
    )
    output = (*batch, "query", "out")
    drafts = [Draft(operands, output, (barrier,))]
    if layer.out_proj.bias is not None:
        bias = call.parameter(layer.out_proj.bias, (FEATURE,))
        drafts.append(Draft((Operand("b", bias, ("out",), r"\mathbf{b}"),), output))
    return call.notebook.compute(call.name, *drafts)


def _projected(
    call: Call, projection: Projection, value: Value, letters: tuple[str, ...]
) -> tuple[Operand, ...]:
    """A value times a projection: two operands, or one step of its own if there is a bias."""
    *front, source, size = letters
    name = projection.name
    weight = Operand(f"W{name}", projection.weight, ("head", size, source), projection.label)
    data = Operand(f"X{name.lower()}", value, (*front, source))
    if projection.bias is None:
        return (data, weight)
    output = (*front, "head", size)
    bias = Operand("b", projection.bias, ("head", size), rf"\mathbf{{b}}^{{{name}}}")
    drafts = (Draft((replace(data, name="X"), weight), output), Draft((bias,), output))
    full = {"Q": "query", "K": "key", "V": "value"}[name]
    done = call.notebook.compute(call.inner(full), *drafts, label=rf"\mathbf{{{name}}}")
    return (Operand(name, done, output),)


def read_scaled_dot_product(call: Call) -> Value:
    """Read softmax(QK/√D)V; axes before the last two are broadcast."""
    query, key, value = (call.value(name) for name in ("query", "key", "value"))
    if float(call.option("dropout_p", 0.0)) > 0.0:
        raise UnsupportedModuleError("dropout_p > 0 is random; pass 0 in evaluation mode")
    causal = bool(call.arguments.get("is_causal")) or _is_causal_kept(call, query, key)
    if call.arguments.get("enable_gqa"):
        return _grouped_query(call, (query, key, value), causal=causal)
    return _dot_product(call, (query, key, value), causal=causal)


def _is_causal_kept(call: Call, query: Value, key: Value) -> bool:
    mask = call.arguments.get("attn_mask")
    if mask is None:
        return False
    is_fitting = isinstance(mask, Tensor) and mask.shape[-2:] == (query.shape[-2], key.shape[-2])
    if is_fitting and is_causal_mask(mask, true_is_kept=True):
        return True
    raise UnsupportedModuleError("attn_mask is read only when it is the causal mask")


def _dot_product(call: Call, inputs: tuple[Value, ...], *, causal: bool) -> Value:
    query, key, value = inputs
    scale = float(call.option("scale", query.shape[-1] ** -0.5))
    order = max(len(given.axes) for given in inputs)
    front = [tuple(str(n) for n in range(order - len(v.axes), order - 2)) for v in inputs]
    operands = (
        Operand("Q", _positions(query, SEQUENCE), (*front[0], "query", "inner")),
        Operand("K", _positions(key, KEY), (*front[1], "key", "inner")),
        Operand("V", _positions(value, KEY), (*front[2], "key", "outer")),
    )
    mask = ("query", "key") if causal else None
    barrier = Barrier("A", ("Q", "K"), SOFTMAX, ("key",), repr(scale), mask)
    batch = max(front, key=len)
    draft = Draft(operands, (*batch, "query", "outer"), (barrier,), broadcast=batch)
    return call.notebook.compute(call.name, draft)


def _positions(value: Value, position: Sort) -> Value:
    return relabelled(value, (*[None] * (len(value.axes) - 2), position, HEAD_FEATURE))


def _grouped_query(call: Call, inputs: tuple[Value, ...], *, causal: bool) -> Value:
    """Several query heads share the key and value heads of their group."""
    query, key, value = inputs
    *front, heads, positions, size = query.shape
    groups = key.shape[-3]
    if heads % groups:
        raise SizeError(f"{call.name}: {heads} query heads cannot share {groups} key heads evenly.")
    name = call.inner("copy")
    cut = (*front, groups, heads // groups, positions, size)
    split = call.notebook.reshape(name, query, cut)
    found = _dot_product(call, (split, unsqueezed(key, -3), unsqueezed(value, -3)), causal=causal)
    return call.notebook.reshape(name, found, (*front, heads, positions, value.shape[-1]))
