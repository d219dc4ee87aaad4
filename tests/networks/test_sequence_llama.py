import math
import struct
from pathlib import Path

import pytest
import torch
from torch import Tensor

from rankscope.errors import ModelFileError, SizeError
from rankscope.networks import Llama, LlamaSizes, RotaryAttention, read_llama2c
from rankscope.networks.llama import rotated

SIZES = LlamaSizes(8, 12, 2, 4, 2, vocabulary=10, num_positions=6)
KINDS = (
    "blocks.{}.attention_norm",
    "blocks.{}.attention.query",
    "blocks.{}.attention.key",
    "blocks.{}.attention.value",
    "blocks.{}.attention.out",
    "blocks.{}.forward_norm",
    "blocks.{}.gate",
    "blocks.{}.down",
    "blocks.{}.up",
)


def model() -> Llama:
    torch.manual_seed(0)
    return Llama(SIZES).eval()


def written(own: Llama, path: Path) -> Path:
    """As llama2.c writes it: kind by kind, each for all layers."""
    weights = dict(own.named_parameters())
    order = ["tokens.weight"]
    order += [f"{kind.format(layer)}.weight" for kind in KINDS for layer in range(2)]
    order.append("norm.weight")
    header = struct.pack("<7i", *vars(own.sizes).values())
    numbers = torch.cat([weights[name].detach().flatten() for name in order])
    path.write_bytes(header + numbers.numpy().tobytes())
    return path


def test_a_file_is_read_as_the_model_that_wrote_it(tmp_path: Path) -> None:
    own = model()
    found = read_llama2c(written(own, tmp_path / "model.bin"))
    tokens = torch.randint(10, (2, 6))
    torch.testing.assert_close(found(tokens), own(tokens))


def test_attention_is_that_of_the_paper_head_by_head() -> None:
    attention = RotaryAttention(SIZES).double()
    inputs = torch.randn(1, 5, 8, dtype=torch.float64)
    turn = torch.polar(torch.ones(5, dtype=torch.float64), torch.arange(5, dtype=torch.float64))
    heads = []
    for head in range(4):  # of size 2: one complex number, turned by its position
        own = slice(2 * head, 2 * head + 2)
        shared = slice(2 * (head // 2), 2 * (head // 2) + 2)
        query = torch.view_as_complex(inputs[0] @ attention.query.weight[own].T) * turn
        key = torch.view_as_complex(inputs[0] @ attention.key.weight[shared].T) * turn
        scores = (query[:, None] * key.conj()).real / math.sqrt(2)
        scores = scores.masked_fill(torch.ones(5, 5).triu(1).bool(), -math.inf)
        heads.append(scores.softmax(dim=1) @ inputs[0] @ attention.value.weight[shared].T)
    expected = torch.cat(heads, dim=1) @ attention.out.weight.T
    torch.testing.assert_close(attention(inputs)[0], expected)


def test_scores_depend_on_the_distance_of_places_only() -> None:
    query, key = torch.randn(6, dtype=torch.float64), torch.randn(6, dtype=torch.float64)
    queries, keys = (rotated(vector.expand(5, 6)) for vector in (query, key))
    scores: Tensor = queries @ keys.T
    for distance in range(-4, 5):
        diagonal = scores.diagonal(distance)
        torch.testing.assert_close(diagonal, diagonal[:1].expand(len(diagonal)))
    torch.testing.assert_close(queries.norm(dim=1), query.norm().expand(5))


def test_a_token_changes_nothing_before_it() -> None:
    own = model()
    tokens, changed = torch.tensor([[1, 2, 3, 4]]), torch.tensor([[1, 2, 0, 4]])
    torch.testing.assert_close(own(tokens)[:, :2], own(changed)[:, :2])
    assert not torch.allclose(own(tokens)[:, 2:], own(changed)[:, 2:])


def test_what_it_writes_follows_from_the_seed() -> None:
    own = model()
    first, again, other = (own.write(4, 5, begin=1, seed=seed) for seed in (0, 0, 1))
    assert first.shape == (4, 5)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert (first[:, 0] == 1).all()


def test_files_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="cannot read"):
        read_llama2c(tmp_path / "missing.bin")
    (tmp_path / "short.bin").write_bytes(b"abc")
    with pytest.raises(ModelFileError, match="requires a buffer of at least 28 bytes"):
        read_llama2c(tmp_path / "short.bin")
    path = written(model(), tmp_path / "model.bin")
    path.write_bytes(path.read_bytes()[:-4])
    total = sum(parameter.numel() for parameter in model().parameters())
    with pytest.raises(ModelFileError, match=rf"has {total - 1:,} weights, .* needs {total:,}"):
        read_llama2c(path)


def test_sizes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(SizeError, match="at least 1"):
        LlamaSizes(8, 12, 0, 4, 2, 10, 6)
    with pytest.raises(SizeError, match="4 heads of even size and 3 heads of keys"):
        LlamaSizes(8, 12, 2, 4, 3, 10, 6)
