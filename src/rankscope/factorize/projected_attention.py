"""The base of attention layers: PyTorch's call, four projections, masks and extra keys.

`nn.MultiheadAttention` packs its four matrices, so that no hook, plan or format can get at one of
them; here they are linear layers of their own.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto

import torch
from torch import Tensor, nn
from torch.nn import functional

from rankscope.diagrams.diagram import Diagram
from rankscope.diagrams.network import Network, Step
from rankscope.diagrams.parts import Function, Index, IndexKind, Node, Region, Role
from rankscope.errors import LayerError
from rankscope.factorize.linear import LinearLayer, linear_of, linear_steps

PROJECTIONS = ("query", "key", "value", "out")
Projections = Mapping[str, LinearLayer]


@dataclass(frozen=True, eq=False)
class AttentionOptions:
    """What an attention does besides its matrices; names are those of `nn.MultiheadAttention`.

    Args:
        dropout: share of the entries of each map that are dropped in training.
        batch_first: inputs are (batch, length, features), not (length, batch, features).
        add_zero_attn: one more key and value, of zeros.
        bias_k: one more projected key, None for none.
        bias_v: its value; there is one if and only if there is a `bias_k`.
    """

    dropout: float = 0.0
    batch_first: bool = False
    add_zero_attn: bool = False
    bias_k: Tensor | None = None
    bias_v: Tensor | None = None

    @classmethod
    def of(cls, attention: nn.MultiheadAttention) -> "AttentionOptions":
        """Read the options of a dense attention; its extra key and value are copied."""
        return cls(
            float(attention.dropout),
            attention.batch_first,
            attention.add_zero_attn,
            _copied(attention.bias_k),
            _copied(attention.bias_v),
        )


def split_projections(attention: nn.MultiheadAttention) -> dict[str, nn.Linear]:
    """The matrices of an attention as four linear layers with copies of its weights.

    Example:
        >>> layers = split_projections(nn.MultiheadAttention(6, 2, kdim=4))
        >>> [tuple(layers[name].weight.shape) for name in PROJECTIONS]
        [(6, 6), (6, 4), (6, 6), (6, 6)]

    Raises:
        LayerError: if something else than a linear layer stands for `out_proj`.
    """
    if not isinstance(attention.out_proj, nn.Linear):
        raise LayerError(
            "split_projections: out_proj of the attention must be an nn.Linear, got "
            f"{type(attention.out_proj).__name__}; put the dense layer back first."
        )
    if attention.in_proj_weight is not None:
        weights = list(attention.in_proj_weight.chunk(3))
    else:
        weights = [attention.q_proj_weight, attention.k_proj_weight, attention.v_proj_weight]
    has_bias = attention.in_proj_bias is not None
    biases = list(attention.in_proj_bias.chunk(3)) if has_bias else [None, None, None]
    out = attention.out_proj
    parts = zip(PROJECTIONS, [*weights, out.weight], [*biases, out.bias], strict=True)
    return {name: linear_of(weight, bias) for name, weight, bias in parts}


def join_projections(
    linears: Mapping[str, nn.Linear], options: AttentionOptions, *, num_heads: int
) -> nn.MultiheadAttention:
    """The dense attention with these matrices, packed as PyTorch packs them."""
    weights = {name: linears[name].weight.detach() for name in PROJECTIONS}
    biases = {name: linears[name].bias for name in PROJECTIONS}
    dense = nn.MultiheadAttention(
        weights["query"].shape[1],
        num_heads,
        options.dropout,
        bias=biases["query"] is not None,
        add_bias_kv=options.bias_k is not None,
        add_zero_attn=options.add_zero_attn,
        kdim=weights["key"].shape[1],
        vdim=weights["value"].shape[1],
        batch_first=options.batch_first,
        device="meta",
    )
    state = {"out_proj.weight": weights["out"]}
    if dense.in_proj_weight is not None:
        state["in_proj_weight"] = torch.cat([weights[name] for name in PROJECTIONS[:3]])
    else:
        state |= {f"{name[0]}_proj_weight": weights[name] for name in PROJECTIONS[:3]}
    if dense.in_proj_bias is not None:
        state["in_proj_bias"] = torch.cat([biases[name] for name in PROJECTIONS[:3]])
        state["out_proj.bias"] = biases["out"]
    if options.bias_k is not None and options.bias_v is not None:
        state |= {"bias_k": options.bias_k, "bias_v": options.bias_v}
    # Copies: a dense projection must not be shared with the attention that it is taken from.
    copies = {name: tensor.detach().clone() for name, tensor in state.items()}
    dense.load_state_dict(copies, assign=True)
    return dense


def fresh_projections(
    num_features: int,
    num_channels: int,
    *,
    kdim: int | None = None,
    vdim: int | None = None,
    bias: bool = True,
) -> dict[str, nn.Linear]:
    """Projections to train from scratch, from features to channels and back.

    Queries, keys and values start as Xavier's uniform law at a gain of 1 / sqrt(2), outputs at 1.
    """
    in_sizes = (num_features, kdim or num_features, vdim or num_features)
    linears = [nn.Linear(size, num_channels, bias=bias) for size in in_sizes]
    linears.append(nn.Linear(num_channels, num_features, bias=bias))
    for place, linear in enumerate(linears):
        nn.init.xavier_uniform_(linear.weight, 1.0 if place == 3 else 2**-0.5)
        if bias:
            nn.init.zeros_(linear.bias)
    return dict(zip(PROJECTIONS, linears, strict=True))


def _copied(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else tensor.detach().clone()


class Maps(Enum):
    """The attention maps that a call returns."""

    NONE = auto()
    AVERAGED = auto()
    EACH = auto()


Mixed = tuple[Tensor, Tensor | None]


def split_heads(tensor: Tensor, num_heads: int) -> Tensor:
    """(batch, length, heads * size) as (batch, heads, length, size)."""
    return tensor.reshape(*tensor.shape[:2], num_heads, -1).transpose(1, 2)


def join_heads(tensor: Tensor) -> Tensor:
    """(batch, heads, length, size) as (batch, length, heads * size)."""
    return tensor.transpose(1, 2).flatten(2)


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    *,
    num_heads: int,
    dropout: float,
    maps: Maps,
) -> Mixed:
    """Multi-head attention of projected inputs (batch, length, heads * size)."""
    queries, keys = split_heads(query, num_heads), split_heads(key, num_heads)
    if maps is Maps.NONE:
        values = split_heads(value, num_heads)
        mixed = functional.scaled_dot_product_attention(queries, keys, values, mask, dropout)
        return join_heads(mixed), None
    scores = (queries / math.sqrt(queries.shape[-1])) @ keys.mT
    return mix_values(scores, value, mask, dropout=dropout, maps=maps)


def mix_values(
    scores: Tensor, value: Tensor, mask: Tensor | None, *, dropout: float, maps: Maps
) -> Mixed:
    """Values (batch, keys, channels) by scores (batch, maps, queries, keys).

    Neighbouring channels share a map if there are fewer maps. Maps are returned as PyTorch does:
    after dropout.
    """
    weights = torch.softmax(scores if mask is None else scores + mask, -1)
    weights = functional.dropout(weights, dropout)
    mixed = join_heads(weights @ split_heads(value, scores.shape[1]))
    if maps is Maps.NONE:
        return mixed, None
    return mixed, weights.mean(1) if maps is Maps.AVERAGED else weights


def merged_mask(
    key_padding_mask: Tensor | None,
    attn_mask: Tensor | None,
    *,
    query: Tensor,
    key: Tensor,
    num_maps: int,
) -> Tensor | None:
    """What is added to the scores (batch, maps, queries, keys); None if nothing is.

    The result has order 4, with size 1 where it is the same for all. As in PyTorch, True and -inf
    both mean "do not look there", and other numbers are added as they are. A mask of order 3 has
    one matrix for each sample and each group of maps, groups being equal and of neighbours: R
    maps that came from H heads take the masks of the H heads.

    Args:
        key_padding_mask: (batch, keys).
        attn_mask: (queries, keys), or (batch * groups, queries, keys).
        query: (batch, queries, features), whose dtype the result has.
        key: (batch, keys, features).
        num_maps: for each sample.

    Example:
        >>> padding = torch.tensor([[False, True]])
        >>> merged_mask(
        ...     padding, None, query=torch.zeros(1, 5, 3), key=torch.zeros(1, 2, 3), num_maps=8
        ... )
        tensor([[[[0., -inf]]]])

    Raises:
        LayerError: if a mask has another shape, or is neither boolean nor floating-point.
    """
    masks = []
    if attn_mask is not None:
        masks.append(_order_four(attn_mask, query, key, num_maps))
    if key_padding_mask is not None:
        if key_padding_mask.shape != key.shape[:2]:
            raise LayerError(
                f"key_padding_mask must have shape {tuple(key.shape[:2])}, (batch, keys); "
                f"got {tuple(key_padding_mask.shape)}."
            )
        masks.append(key_padding_mask[:, None, None, :])
    added = [_additive(mask, query.dtype) for mask in masks]
    if len(added) == 2:
        return added[0] + added[1]
    return added[0] if added else None


def _order_four(mask: Tensor, query: Tensor, key: Tensor, num_maps: int) -> Tensor:
    batch, num_queries, num_keys = query.shape[0], query.shape[1], key.shape[1]
    if tuple(mask.shape) == (num_queries, num_keys):
        return mask[None, None]
    groups = mask.shape[0] // batch if mask.dim() == 3 else 0
    wanted = (batch * groups, num_queries, num_keys)
    if groups < 1 or num_maps % groups or tuple(mask.shape) != wanted:
        raise LayerError(
            f"attn_mask must have shape {(num_queries, num_keys)}, or {batch} times a divisor of "
            f"{num_maps} such matrices, for {batch} samples and {num_maps} maps; "
            f"got {tuple(mask.shape)}."
        )
    of_groups = mask.reshape(batch, groups, num_queries, num_keys)
    return of_groups.repeat_interleave(num_maps // groups, dim=1) if groups > 1 else of_groups


def _additive(mask: Tensor, dtype: torch.dtype) -> Tensor:
    if mask.dtype == torch.bool:
        empty = torch.zeros_like(mask, dtype=dtype)
        return empty.masked_fill(mask, float("-inf"))
    if not mask.is_floating_point():
        raise LayerError(
            f"A mask must be boolean (True: do not look there) or floating-point (added to the "
            f"scores), got {mask.dtype}; convert it with .bool()."
        )
    return mask.to(dtype)


SOFTMAX = Function("softmax")


@dataclass(frozen=True)
class MixingSketch:
    """The diagrams in which projected queries, keys and values are contracted.

    Args:
        channels: every index but those of queries and keys.
        score_legs: the channels of queries and of keys.
        value_legs: the channels of values and of outputs.
        cores: learned tensors among the scores.
        scale: of the scores, see `Region`.
        function: of the scores.
    """

    channels: tuple[Index, ...]
    score_legs: tuple[str, ...]
    value_legs: tuple[str, ...]
    cores: tuple[Node, ...] = ()
    scale: str | None = None
    function: Function = SOFTMAX


def head_indices(num_heads: int, head_size: int) -> tuple[Index, Index, Index]:
    """Heads h, and their features d among scores and c among values."""
    heads = Index("h", num_heads, "H", IndexKind.HEAD)
    among_scores, among_values = (Index(x, head_size, "D", IndexKind.FEATURE) for x in "dc")
    return heads, among_scores, among_values


def rank_index(name: str, size: int) -> Index:
    """A channel that is no feature of a head."""
    return Index(name, size, "R", IndexKind.RANK)


def attention_network(
    projections: Projections, sketch: MixingSketch, *, num_queries: int, num_keys: int
) -> Network:
    """One sample without masks: inputs `query`, `key` and `value`, each (length, features)."""
    queries = Index("n", num_queries, "N", IndexKind.SEQUENCE)
    keys = Index("m", num_keys, "M", IndexKind.SEQUENCE)
    steps: list[Step] = []
    for name, rows in zip(PROJECTIONS[:3], (queries, keys, keys), strict=True):
        steps += linear_steps(name[0], projections[name], name, prefix=f"{name}.", rows=(rows,))
    nodes = (
        Node("Q", ("n", *sketch.score_legs), Role.DATA, array="q"),
        Node("K", ("m", *sketch.score_legs), Role.DATA, array="k"),
        *sketch.cores,
        Node("V", ("m", *sketch.value_legs), Role.DATA, array="v"),
    )
    members = tuple(node.name for node in nodes[:-1])
    over = ("m",) if sketch.function.normalizes else ()
    maps = Region("A", members, sketch.function, over=over, scale=sketch.scale)
    mixed = Diagram(
        "mixed",
        (queries, keys, *sketch.channels),
        nodes,
        ("n", *sketch.value_legs),
        regions=(maps,),
    )
    steps.append(Step("mixed", mixed, r"\mathbf{O}"))
    steps += linear_steps("y", projections["out"], "mixed", prefix="out.", rows=(queries,))
    return Network("attention", tuple(steps), "Attention")


class _NoFastPath:
    """Stands where PyTorch's transformer layers look for packed weights, and turns them away.

    `nn.TransformerEncoder` in eval mode would go on without this layer. Something that handles
    torch functions by itself, as this claims to do, is a reason for them to call the layer.
    """

    requires_grad = False

    @property
    def weight(self) -> "_NoFastPath":
        return self

    bias = weight

    @classmethod
    def __torch_function__(cls, *call: object) -> object:
        return NotImplemented


_NO_FAST_PATH = _NoFastPath()


class ProjectedAttention(nn.Module, ABC):
    """Attention between projections; subclasses say how projected queries, keys, values mix.

    It is called as `nn.MultiheadAttention` is, also by `nn.TransformerEncoderLayer` and its kin.
    Unlike there, `is_causal` is never used in place of the mask that it promises.

    Args:
        projections: "query", "key", "value" and "out", each a linear layer, dense or factorized.
        num_maps: attention maps for each sample.
        options: everything else.
    """

    query: LinearLayer
    key: LinearLayer
    value: LinearLayer
    out: LinearLayer
    in_proj_weight = _NO_FAST_PATH
    out_proj = _NO_FAST_PATH
    in_proj_bias = None
    _qkv_same_embed_dim = False

    def __init__(
        self, projections: Projections, num_maps: int, options: AttentionOptions | None = None
    ) -> None:
        super().__init__()
        options = options or AttentionOptions()
        self.query, self.key, self.value, self.out = (projections[name] for name in PROJECTIONS)
        self.num_maps = num_maps
        self.dropout = options.dropout
        self.batch_first = options.batch_first
        self.add_zero_attn = options.add_zero_attn
        self.bias_k = None if options.bias_k is None else nn.Parameter(options.bias_k)
        self.bias_v = None if options.bias_v is None else nn.Parameter(options.bias_v)

    @property
    def projections(self) -> dict[str, LinearLayer]:
        """The four linear layers by name."""
        return dict(zip(PROJECTIONS, (self.query, self.key, self.value, self.out), strict=True))

    @property
    def options(self) -> AttentionOptions:
        """Everything but the projections and how they are mixed."""
        extra = (None if each is None else each.detach() for each in (self.bias_k, self.bias_v))
        return AttentionOptions(self.dropout, self.batch_first, self.add_zero_attn, *extra)

    @property
    def num_parameters(self) -> int:
        """Number of trained parameters."""
        return sum(parameter.numel() for parameter in self.parameters())

    @abstractmethod
    def _mix(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, maps: Maps
    ) -> Mixed:
        """Outputs (batch, queries, channels) and maps, from projected inputs of the same form."""

    @abstractmethod
    def _sketch(self) -> MixingSketch:
        """The same as a diagram."""

    def diagram(self, *, num_queries: int, num_keys: int) -> Network:
        """The layer on one sample, without masks and dropout; arrays are named as parameters are.

        Raises:
            LayerError: if keys are appended, which no diagram can say.
        """
        num_extra = int(self.bias_k is not None) + int(self.add_zero_attn)
        if num_extra:
            raise LayerError(
                f"{type(self).__name__}: {num_extra} extra key(s) (add_bias_kv, add_zero_attn) are "
                "appended to the others, which cannot be drawn as a diagram."
            )
        sketch = self._sketch()
        return attention_network(
            self.projections, sketch, num_queries=num_queries, num_keys=num_keys
        )

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> Mixed:
        """Attend as `nn.MultiheadAttention` does: the outputs, and the maps if they are needed.

        Raises:
            LayerError: if shapes do not fit, inputs are nested, or `is_causal` comes without mask.
        """
        self._check(query, key, value)
        if is_causal and attn_mask is None:
            raise LayerError(
                "is_causal=True only promises that attn_mask is causal, but it is None; pass "
                "nn.Transformer.generate_square_subsequent_mask(length) too."
            )
        is_batched = query.dim() == 3
        inputs = [self._batches(tensor) for tensor in (query, key, value)]
        if key_padding_mask is not None and not is_batched:
            key_padding_mask = key_padding_mask[None]
        mask = merged_mask(
            key_padding_mask, attn_mask, query=inputs[0], key=inputs[1], num_maps=self.num_maps
        )
        maps = Maps.NONE if not need_weights else Maps.EACH
        if need_weights and average_attn_weights:
            maps = Maps.AVERAGED
        projected = self.query(inputs[0]), self.key(inputs[1]), self.value(inputs[2])
        mixed, weights = self._mix(*self._with_extra_keys(*projected, mask), maps)
        outputs = self.out(mixed)
        if not is_batched:
            return outputs[0], None if weights is None else weights[0]
        return outputs if self.batch_first else outputs.transpose(0, 1), weights

    def _check(self, query: Tensor, key: Tensor, value: Tensor) -> None:
        name = type(self).__name__
        if query.is_nested or key.is_nested or value.is_nested:
            raise LayerError(
                f"{name} takes no nested tensors; set use_nested_tensor = False on the "
                "nn.TransformerEncoder around it."
            )
        shapes = [tuple(tensor.shape) for tensor in (query, key, value)]
        orders = {len(shape) for shape in shapes}
        if orders not in ({2}, {3}):
            raise LayerError(
                f"{name} takes query, key and value all of order 3, or 2 without a batch, got "
                f"shapes {shapes[0]}, {shapes[1]} and {shapes[2]}."
            )
        place = 0 if self.batch_first else 1
        if key.shape[:-1] != value.shape[:-1] or (
            query.dim() == 3 and query.shape[place] != key.shape[place]
        ):
            raise LayerError(
                f"{name} with batch_first={self.batch_first}: key and value must have the same "
                "length, and all three the same batch, got shapes "
                f"{shapes[0]}, {shapes[1]} and {shapes[2]}."
            )

    def _batches(self, tensor: Tensor) -> Tensor:
        """Rearrange to (batch, length, features)."""
        if tensor.dim() == 2:
            return tensor[None]
        return tensor if self.batch_first else tensor.transpose(0, 1)

    def _with_extra_keys(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """The same with learned and zero keys behind the others; nothing masks those."""
        extra: list[tuple[Tensor, Tensor]] = []
        if self.bias_k is not None and self.bias_v is not None:
            extra.append((self.bias_k, self.bias_v))
        if self.add_zero_attn:
            extra.append((key.new_zeros(1, 1, key.shape[2]), value.new_zeros(1, 1, value.shape[2])))
        for one_key, one_value in extra:
            key = torch.cat([key, one_key.expand(key.shape[0], -1, -1)], 1)
            value = torch.cat([value, one_value.expand(value.shape[0], -1, -1)], 1)
        if mask is not None and extra:
            mask = functional.pad(mask, (0, len(extra)))
        return query, key, value, mask

    def quantize(self, bits: int) -> None:
        """Store the cores of every factorized projection with 8 or 4 bits each."""
        for module in self.projections.values():
            if not isinstance(module, nn.Linear):
                module.quantize(bits)

    def extra_repr(self) -> str:
        shown = [f"num_maps={self.num_maps}", f"batch_first={self.batch_first}"]
        shown += [f"dropout={self.dropout}"] if self.dropout else []
        shown += ["add_bias_kv=True"] if self.bias_k is not None else []
        shown += ["add_zero_attn=True"] if self.add_zero_attn else []
        return ", ".join(shown)
