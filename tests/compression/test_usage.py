"""How often weights are used, and on what sizes, as one example batch shows."""

import pytest
import torch
from torch import Tensor, nn

from rankscope.compression import Call, Stopwatch, Usage, observe, read_sites
from rankscope.compression.usage import flops
from rankscope.errors import CompressionError, UnsupportedModuleError
from rankscope.factorize import DENSE, FORMATS


def usage_of(model: nn.Module, *example: Tensor) -> Usage:
    return observe(model, read_sites(model).sites, example)


@pytest.mark.slow
def test_every_kind_of_layer_is_counted_on_its_own_inputs() -> None:
    assert usage_of(nn.Linear(4, 5), torch.zeros(2, 3, 4)).calls == {"": (Call(6),)}
    assert usage_of(nn.Embedding(9, 5), torch.zeros(2, 7, dtype=torch.long)).calls == {
        "": (Call(14, looks_up=True),)
    }
    images = torch.zeros(2, 4, 8, 9)
    convolution = nn.Conv2d(4, 4, 3, padding=1)
    assert usage_of(convolution, images).calls == {"": (Call(2, (8, 9)),)}
    turned = images.contiguous(memory_format=torch.channels_last)
    assert usage_of(convolution, turned).calls == {"": (Call(2, (8, 9), channels_last=True),)}
    same = nn.Conv2d(4, 4, (3, 5), padding="same", padding_mode="circular")
    assert usage_of(same, images).calls == {"": (Call(2, (8, 9)),)}
    assert usage_of(nn.Conv1d(4, 4, 3), torch.zeros(4, 8)).calls == {"": (Call(1, (8,)),)}
    attention = nn.MultiheadAttention(4, 2, batch_first=True)
    query, key = torch.zeros(2, 3, 4), torch.zeros(2, 5, 4)
    assert usage_of(attention, query, key, key).calls == {
        "query": (Call(6),),
        "key": (Call(10),),
        "value": (Call(10),),
        "out": (Call(6),),
    }
    calls = usage_of(nn.GRU(4, 6), torch.zeros(7, 3, 4)).calls
    assert calls == {"weight_ih_l0": (Call(21),), "weight_hh_l0": (Call(21, steps=7),)}
    calls = usage_of(nn.LSTM(4, 6, batch_first=True), torch.zeros(3, 7, 4)).calls
    assert calls == {"weight_ih_l0": (Call(21),), "weight_hh_l0": (Call(21, steps=7),)}


class Deciding(nn.Module):
    """Looks at its numbers before it decides what to do."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.inner(inputs) if float(inputs.sum()) > 0 else inputs
        return outputs


def test_a_model_that_torch_cannot_export_is_refused_with_its_reason() -> None:
    with pytest.raises(UnsupportedModuleError, match="torch cannot export Deciding: "):
        usage_of(Deciding(), torch.zeros(2, 4))
    packed = nn.utils.rnn.pack_sequence([torch.zeros(3, 4), torch.zeros(2, 4)])
    rnn = nn.LSTM(4, 6)
    with pytest.raises(UnsupportedModuleError, match="a packed sequence, got one of 3 steps"):
        observe(rnn, read_sites(rnn).sites, (packed,))


class Twice(nn.Module):
    """One layer called twice, one never, and a product without a weight."""

    def __init__(self) -> None:
        super().__init__()
        self.used, self.unused = nn.Linear(4, 4, bias=False), nn.Linear(4, 4)

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.used(self.used(inputs))
        return outputs @ outputs.mT


def test_flops_are_those_of_all_calls_and_of_what_lies_between() -> None:
    model = Twice()
    usage = usage_of(model, torch.zeros(3, 4))
    assert usage.calls == {"used": (Call(3), Call(3))}
    unused = read_sites(model).sites[1]
    assert usage.reason_to_leave(unused) == "not reached by the example: nothing uses it"
    # A multiply-add is two operations, and there are two calls.
    assert usage.other_flops == 2 * 3 * 4 * 3
    (used, _) = read_sites(model).sites
    assert flops(used, DENSE, (), usage.calls["used"]) == 2 * 2 * 3 * 16
    assert flops(used, FORMATS["svd"], (1,), usage.calls["used"]) == 2 * 2 * 3 * 8


def test_looking_up_takes_no_products_dense_and_few_factorized() -> None:
    (site,) = read_sites(nn.Embedding(50, 8)).sites
    assert flops(site, DENSE, (), (Call(10, looks_up=True),)) == 0
    assert flops(site, FORMATS["svd"], (3,), (Call(10, looks_up=True),)) == 10 * 2 * 3 * 8


def test_an_example_that_does_not_fit_is_refused_with_its_shape() -> None:
    with pytest.raises(CompressionError, match=r"\(shape \(2, 5\), torch.float32\)"):
        observe(nn.Linear(4, 4), (), torch.zeros(2, 5))
    with pytest.raises(CompressionError, match=r"shapes \(2, 5\), \(3,\)"):
        observe(nn.Linear(4, 4), (), (torch.zeros(2, 5), torch.zeros(3)))


def test_the_mode_is_back_after_watching() -> None:
    model = Twice().train()
    usage_of(model, torch.zeros(3, 4))
    assert model.training


class Tied(nn.Module):
    """A table that is looked up, in double precision, and multiplied with what comes out."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(9, 4)

    def forward(self, numbers: Tensor) -> Tensor:
        vectors = nn.functional.embedding(numbers, self.table.weight.double())
        return nn.functional.linear(vectors, self.table.weight.double())


def test_a_weight_is_followed_through_copies_to_all_its_uses() -> None:
    model = Tied()
    usage = usage_of(model, torch.zeros(3, 2, dtype=torch.long))
    assert usage.calls == {"table": (Call(6, looks_up=True), Call(6))}
    assert usage.other_flops == 0
    (table,) = read_sites(model).sites
    assert flops(table, DENSE, (), usage.calls["table"]) == 2 * 6 * 9 * 4


class Masked(nn.Module):
    """A weight that is changed before it is multiplied."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 5, bias=False)

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs @ self.inner.weight.exp().mT


def test_a_weight_that_is_not_multiplied_itself_is_left_alone_with_the_operation() -> None:
    model = Masked()
    (site,) = read_sites(model).sites
    reason = usage_of(model, torch.zeros(2, 4)).reason_to_leave(site)
    assert reason is not None
    assert reason.startswith("its weight is used by exp in the model, which does not multiply it")


@pytest.mark.parametrize(
    ("module", "call", "format", "ranks"),
    [
        (nn.Linear(8, 8), Call(6, steps=2), "svd", (2,)),
        (nn.Embedding(20, 8), Call(6, looks_up=True), "svd", (2,)),
        (nn.Conv1d(8, 8, 3, groups=2), Call(2, (9,)), "svd", (2,)),
        (nn.Conv2d(8, 8, 3, stride=2, padding=1), Call(2, (9, 7)), "tucker", (2, 3)),
        (nn.Conv1d(8, 8, 4, padding="same"), Call(2, (9,)), "svd", (2,)),
        (nn.Conv1d(8, 8, 3, padding=1, padding_mode="circular"), Call(2, (9,)), "svd", (2,)),
    ],
)
def test_every_kind_of_weight_can_be_timed(
    module: nn.Module, call: Call, format: str, ranks: tuple[int, ...]
) -> None:
    (site,) = read_sites(module).sites
    stopwatch = Stopwatch(repeats=1)
    assert stopwatch.of_site(site, (call,)) > 0
    first = stopwatch.of_site(site, (call,), FORMATS[format], ranks)
    assert first > 0
    assert stopwatch.of_site(site, (call, call), FORMATS[format], ranks) == 2 * first
