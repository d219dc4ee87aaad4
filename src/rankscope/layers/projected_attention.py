"""What every attention here shares: PyTorch's call, four projections, masks and extra keys."""

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn
from torch.nn import functional

from rankscope.diagrams.network import Network
from rankscope.errors import LayerError
from rankscope.layers.attention_diagram import MixingSketch, attention_network
from rankscope.layers.attention_maps import Maps, Mixed
from rankscope.layers.attention_masks import merged_mask
from rankscope.layers.attention_projections import PROJECTIONS, AttentionOptions, Projections
from rankscope.layers.linear_layers import LinearLayer


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
        """How many numbers it learns."""
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
        """As `nn.MultiheadAttention`: the outputs, and the maps if they are needed.

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
        """As (batch, length, features)."""
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
