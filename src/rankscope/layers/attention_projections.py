"""The four matrices of an attention, as linear layers of their own.

`nn.MultiheadAttention` packs them, so that no hook, plan or format can get at one of them.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from rankscope.errors import LayerError
from rankscope.layers.linear_layers import LinearLayer, linear_of

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
        """Those of a dense attention; its extra key and value are copied."""
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
