"""Multi-head attention from its definition."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from rankscope.constructions.lookup_attention import attend, transformer_scale
from rankscope.diagrams.cost import cost
from rankscope.diagrams.families import build_family
from rankscope.errors import ConstructionError


@dataclass(frozen=True, eq=False)
class MultiHeadAttention:
    """Several attentions side by side, and a projection of all their outputs.

    Args:
        query: heads x query features x key size.
        key: heads x key features x key size.
        value: heads x value features x value size.
        projection: output features x (heads times value size).
        bias: of the projection.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    projection: Tensor
    bias: Tensor

    @classmethod
    def of(cls, module: nn.MultiheadAttention) -> "MultiHeadAttention":
        """The weights of torch's module, cut into heads.

        Raises:
            ConstructionError: if it has what the definition has not: biases of queries, keys and
                values that are not zero, an added key, or no bias of the projection.
        """
        biased = module.in_proj_bias is not None and bool(module.in_proj_bias.any())
        if biased or module.bias_k is not None or module.add_zero_attn:
            raise ConstructionError(
                "MultiHeadAttention.of: the definition has no bias of queries, keys and values, "
                f"no added key and no zero key, got {module}; set in_proj_bias to zero."
            )
        if module.out_proj.bias is None:
            raise ConstructionError(
                f"MultiHeadAttention.of: the projection of {module} has no bias; build it with "
                "bias=True."
            )
        if module.in_proj_weight is None:
            weights = (module.q_proj_weight, module.k_proj_weight, module.v_proj_weight)
        else:
            weights = module.in_proj_weight.chunk(3)
        query, key, value = (
            weight.detach().reshape(module.num_heads, -1, weight.shape[1]).transpose(1, 2)
            for weight in weights
        )
        projection = module.out_proj
        return cls(query, key, value, projection.weight.detach(), projection.bias.detach())

    def __call__(self, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """Attend with each head, put the outputs side by side, project.

        Raises:
            ConstructionError: if the shapes do not fit.

        Reference:
            Diehl (2023), section 2.2; Vaswani et al. (2017), section 3.2.2, arXiv:1706.03762.
        """
        scale = transformer_scale(self.key.shape[-1])
        outputs = [
            attend(queries @ query, keys @ key, values @ value, scale=scale).outputs
            for query, key, value in zip(self.query, self.key, self.value, strict=True)
        ]
        return torch.cat(outputs, dim=1) @ self.projection.T + self.bias


def attention_operations(length: int, *, features: int, heads: int) -> int:
    """Operations of self-attention, counted by its diagram; functions are not counted.

    Example:
        >>> attention_operations(512, features=64, heads=4)
        83886080

    Raises:
        ConstructionError: if the heads do not divide the features.
    """
    if heads < 1 or features % heads:
        raise ConstructionError(
            f"attention_operations: {heads} heads do not divide {features} features."
        )
    sizes = {"N": length, "M": length, "F": features, "H": heads, "D": features // heads}
    return cost(build_family("multi-head", sizes)).flops
