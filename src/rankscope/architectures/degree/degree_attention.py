"""Softmax-free attention of odd degree, normalized so that deep ones can be trained."""

import torch
from torch import Tensor, nn

from rankscope.architectures.arithmetic import Reals
from rankscope.architectures.attention.layers import attend, follow_chain
from rankscope.architectures.attention.self_attention import SelfAttention
from rankscope.architectures.degree.batch_scale import BatchScale
from rankscope.architectures.network import Setting
from rankscope.architectures.sizes import require_sizes
from rankscope.errors import SizeError


class DegreeAttention(nn.Module):
    r"""The layers of a `SelfAttention`, each followed by a `BatchScale` of the token vectors.

    Degree 3 is multi-head attention, higher ones the chain W₀(G W₁)…(G W_s) X of degree 2s + 1 with
    G = XXᵗ; even degrees do not exist, as a chain of an even number of X is no array of tokens.
    Outputs are the first coordinates of the token at the output position. At inference each is
    exactly a `SelfAttention` with the normalization in its weights: `polynomial()`.

    Args:
        num_outputs: entries of the output, at most the width.
        generator: where the initial weights come from.
        settings: of `SelfAttention`.

    Example:
        >>> network = DegreeAttention(num_outputs=2, depth=2, width=4, num_tokens=6, degree=5)
        >>> network(torch.ones(3, 6, 4)).shape, network.polynomial(1).input_degree
        (torch.Size([3, 2]), 25)

    Raises:
        SizeError: if a size does not fit, or the degree is even.

    Reference:
        Navon (2021), eq. (2), as docs/separation_rank.md reads it.
    """

    def __init__(
        self,
        *,
        num_outputs: int = 1,
        generator: torch.Generator | None = None,
        **settings: Setting,
    ) -> None:
        super().__init__()
        self.core = SelfAttention(**settings, generator=generator)  # type: ignore[arg-type]
        require_sizes("DegreeAttention", num_outputs=num_outputs)
        if num_outputs > self.core.width:
            raise SizeError(
                f"DegreeAttention: outputs are coordinates of a token, at most {self.core.width}, "
                f"got {num_outputs}."
            )
        self.num_outputs = num_outputs
        self.scales = nn.ModuleList(BatchScale(self.core.width) for _ in self.core.layers)

    def forward(self, inputs: Tensor) -> Tensor:
        """Outputs (batch, num_outputs) of inputs (batch, num_tokens, input_size).

        Raises:
            SizeError: if the inputs have another shape.
        """
        core = self.core
        core.require_inputs(tuple(inputs.shape))
        weights = dict(core.named_parameters())
        tokens = inputs
        if core.embedding_rank is not None:
            tokens = tokens @ core.embedding.T
        if core.has_positions:
            tokens = tokens + core.positions
        layer = attend if core.degree == 3 else follow_chain
        for number, scale in enumerate(self.scales):
            tokens = scale(layer(Reals(), weights, f"layers.{number}", tokens))
        return tokens[:, core.output_position, : self.num_outputs]

    def polynomial(self, output: int = 0) -> SelfAttention:
        """One output at inference, in float64, the normalization in the weights.

        Raises:
            SizeError: if there is no such output.
        """
        if not 0 <= output < self.num_outputs:
            raise SizeError(
                f"DegreeAttention: the output must lie in 0..{self.num_outputs - 1}, got {output}."
            )
        found = SelfAttention(**self.core.settings).double()  # type: ignore[arg-type]
        state = {name: value.detach().double() for name, value in self.core.named_parameters()}
        last = len(self.scales) - 1
        for number, scale in enumerate(self.scales):
            assert isinstance(scale, BatchScale)
            name = f"layers.{number}." + ("output" if self.core.degree == 3 else "factors.0")
            rows = scale.scales().double()
            state[name] = state[name] / rows.view(-1, *[1] * (state[name].ndim - 1))
            if number == last:  # the polynomial's output is coordinate 0
                state[name] = state[name].roll(-output, dims=0)
        found.load_state_dict(state)
        return found
