import copy

import jaxtyping
import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from rankscope.errors import LayerError
from rankscope.factorize import FORMATS, FactorizedEmbedding, Format, WeightShape

SHAPE = WeightShape(30, 24)
LOOKING_UP = [FORMATS["svd"], FORMATS["r-tensor-train"]]
FORMAT = pytest.mark.parametrize("format", LOOKING_UP, ids=lambda format: format.name)
NUMBERS = torch.tensor([[0, 7, 29], [3, 7, 28]])


def _layer(format: Format, padding_idx: int | None = None) -> FactorizedEmbedding:
    torch.manual_seed(0)
    embedding = nn.Embedding(30, 24, padding_idx, dtype=torch.float64)
    ranks = format.largest_ranks(SHAPE, 400)
    assert ranks is not None
    return FactorizedEmbedding.from_dense(embedding, format, ranks)


@FORMAT
@pytest.mark.parametrize("padding_idx", [None, 7])
def test_vectors_are_those_of_the_rebuilt_table(format: Format, padding_idx: int | None) -> None:
    layer = _layer(format, padding_idx)
    dense = layer.to_dense()
    assert dense.padding_idx == padding_idx
    torch.testing.assert_close(layer(NUMBERS), dense(NUMBERS))
    torch.testing.assert_close(layer(NUMBERS[0, 1]), dense(NUMBERS[0, 1]))
    assert layer(NUMBERS).shape == (2, 3, 24)


@FORMAT
def test_at_full_ranks_vectors_are_those_of_the_dense_table(format: Format) -> None:
    embedding = nn.Embedding(30, 24, dtype=torch.float64)
    layer = FactorizedEmbedding.from_dense(embedding, format, format.full_ranks(SHAPE))
    torch.testing.assert_close(layer(NUMBERS), embedding(NUMBERS))


@FORMAT
def test_the_padding_vector_stays_zero_while_the_others_train(format: Format) -> None:
    layer = _layer(format, padding_idx=7)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        (layer(NUMBERS) - 1).square().sum().backward()
        optimizer.step()
    assert not layer(torch.tensor(7)).any()
    assert layer(torch.tensor(3)).any()


@FORMAT
def test_gradients_are_those_of_the_rebuilt_table(format: Format) -> None:
    layer = _layer(format)
    cores = list(layer.cores.parameters())
    table = format.to_dense(layer.cores.tensors(), SHAPE)
    wanted = torch.autograd.grad(nn.functional.embedding(NUMBERS, table).square().sum(), cores)
    found = torch.autograd.grad(layer(NUMBERS).square().sum(), cores)
    torch.testing.assert_close(found, wanted)


@FORMAT
def test_the_table_is_never_built(format: Format) -> None:
    layer = _layer(format)
    largest: list[int] = []

    class Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            result = func(*args, **(kwargs or {}))
            if isinstance(result, Tensor):
                largest.append(result.numel())
            return result

    with torch.no_grad(), Watch():  # type: ignore[no-untyped-call]
        layer(NUMBERS[0, :1])
    # Nothing larger than the largest core (which may be turned) is made.
    assert max(largest) <= max(core.numel() for core in layer.cores.parameters())
    assert max(largest) < SHAPE.num_parameters


@FORMAT
def test_state_copies_and_export_agree(format: Format) -> None:
    layer, wanted = _layer(format), _layer(format)(NUMBERS)
    twin = copy.deepcopy(layer)
    with torch.no_grad():
        for core in layer.cores.parameters():
            core.zero_()
    torch.testing.assert_close(twin(NUMBERS), wanted)
    layer.load_state_dict(twin.state_dict())
    torch.testing.assert_close(layer(NUMBERS), wanted)
    exported = torch.export.export(layer, (NUMBERS,))
    torch.testing.assert_close(exported.module()(NUMBERS), wanted)


@pytest.mark.slow
def test_it_compiles_to_one_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    # The compiler cannot look through the type checks of these tests.
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    layer = _layer(FORMATS["svd"], padding_idx=7)
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(NUMBERS), layer(NUMBERS))


@pytest.mark.parametrize("bits", [8, 4])
def test_quantized_vectors_are_near(bits: int) -> None:
    layer = _layer(FORMATS["svd"])
    before = layer(NUMBERS).detach()
    layer.quantize(bits)
    moved = (layer(NUMBERS) - before).norm() / before.norm()
    # Two cores, each number moved by at most half of one of 127 (7) steps of the largest.
    assert 0 < float(moved) < 2 * 3 / {8: 127, 4: 7}[bits]


def test_it_says_what_it_keeps() -> None:
    layer = _layer(FORMATS["svd"], padding_idx=7)
    assert layer.extra_repr() == (
        "30 x 24, padding_idx=7, svd at ranks (7,): 378 of 720 weights (52.5 %)"
    )
    assert (layer.num_embeddings, layer.embedding_dim) == (30, 24)
    assert layer.weight_diagram().output == ("t", "s")


def test_a_vector_beside_the_cores_is_in_no_diagram() -> None:
    with pytest.raises(LayerError, match=r"number 7 of 30 \(padding_idx\) is kept beside"):
        _layer(FORMATS["svd"], padding_idx=7).diagram(5)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_norm": 2.0}, "max_norm=2.0"),
        ({"sparse": True}, "sparse=True"),
        ({"scale_grad_by_freq": True}, "scale_grad_by_freq=True"),
    ],
)
def test_settings_of_single_vectors_are_refused_by_name(
    settings: dict[str, float | bool], message: str
) -> None:
    embedding = nn.Embedding(30, 24, **settings)  # type: ignore[arg-type]
    with pytest.raises(LayerError, match=f"FactorizedEmbedding: {message} changes single vectors"):
        FactorizedEmbedding.from_dense(embedding, FORMATS["svd"], (2,))


@FORMAT
def test_a_padding_vector_that_is_not_zero_stays_what_it_is(format: Format) -> None:
    dense = nn.Embedding(30, 24, padding_idx=7, dtype=torch.float64)
    with torch.no_grad():
        dense.weight[7] = 0.5
    layer = FactorizedEmbedding.from_dense(dense, format, format.largest_ranks(SHAPE, 500) or (1,))
    optimizer = torch.optim.AdamW(layer.parameters(), lr=0.1)
    layer(NUMBERS).square().sum().backward()
    optimizer.step()
    assert bool((layer(torch.tensor(7)) == 0.5).all())
    assert bool((layer.to_dense().weight[7] == 0.5).all())


def test_a_format_that_cannot_look_up_rows_is_refused() -> None:
    message = r"a row of a matrix \(30, 24\) cannot be looked up from 2 cores"
    format = FORMATS["tucker"]
    with pytest.raises(LayerError, match=message):
        format.rows({"one": torch.ones(1), "two": torch.ones(1)}, SHAPE, NUMBERS)
