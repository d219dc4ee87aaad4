"""Attention layers against the sums they are defined by."""

import pytest
import torch
from torch import Tensor

from rankscope.rank import AttentionLayer, ChainLayer, Modulo, Reals, follow_chain
from rankscope.rank.networks.self_attention import attend, normal

PRIME = 2**31 - 1


def weights_of(layer: torch.nn.Module) -> dict[str, Tensor]:
    return {f"layer.{name}": weight.detach() for name, weight in layer.named_parameters()}


def test_an_attention_layer_is_its_printed_sum(generator: torch.Generator) -> None:
    layer = AttentionLayer(4, 3, 2, 5, generator=generator).double()
    tokens = torch.randn(2, 5, 4, generator=generator, dtype=torch.float64)
    expected = torch.zeros_like(tokens)
    for batch in range(2):
        for i in range(5):
            for head in range(3):
                for j in range(5):
                    query = layer.query[head] @ tokens[batch, i]
                    key = layer.key[head] @ tokens[batch, j]
                    value = layer.value[head] @ tokens[batch, j]
                    expected[batch, i] += (query @ key * layer.output[:, head] @ value).detach()
    torch.testing.assert_close(attend(Reals(), weights_of(layer), "layer", tokens), expected)


@pytest.mark.parametrize("degree", [3, 5, 9])
def test_a_chain_layer_is_its_product_of_matrices(degree: int, generator: torch.Generator) -> None:
    layer = ChainLayer(3, degree, 4, generator=generator).double()
    factors = [factor.detach() for factor in layer.factors]
    assert len(factors) == (degree + 1) // 2
    tokens = torch.randn(1, 4, 3, generator=generator, dtype=torch.float64)
    columns = tokens[0].T
    expected = factors[0]
    for factor in factors[1:]:
        expected = expected @ columns @ columns.T @ factor
    found = follow_chain(Reals(), weights_of(layer), "layer", tokens)
    torch.testing.assert_close(found[0].T, expected @ columns)


def test_residues_follow_the_same_equations(generator: torch.Generator) -> None:
    def small(*shape: int) -> Tensor:
        return torch.randint(-3, 4, shape, generator=generator)

    tokens = small(2, 4, 3)
    heads = {name: small(2, 2, 3) for name in ("query", "key", "value")}
    weights = {f"a.{name}": weight for name, weight in heads.items()}
    weights["a.output"] = small(3, 2, 2)
    weights |= {f"c.factors.{place}": small(3, 3) for place in range(3)}
    for layer, prefix in ((attend, "a"), (follow_chain, "c")):
        real = layer(
            Reals(), {name: weight.double() for name, weight in weights.items()}, prefix,
            tokens.double(),
        )  # fmt: skip
        residues = layer(
            Modulo(PRIME), {name: weight % PRIME for name, weight in weights.items()}, prefix,
            tokens % PRIME,
        )  # fmt: skip
        assert torch.equal(real.to(torch.int64) % PRIME, residues)


def test_random_entries_have_the_variance_asked_for(generator: torch.Generator) -> None:
    drawn = normal((200, 500), 16, generator)
    # The sample variance of n entries is off by a factor of about 1 ± sqrt(2 / n).
    assert float(drawn.var()) * 16 == pytest.approx(1, abs=5 * (2 / drawn.numel()) ** 0.5)
