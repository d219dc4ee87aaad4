"""How often weights are used, and on what sizes, as one example batch shows."""

import pytest
import torch
from torch import Tensor, nn

from rankscope.compression.sites import read_sites
from rankscope.compression.usage import Call, Stopwatch, Usage, flops, observe
from rankscope.errors import CompressionError
from rankscope.factorize.formats.catalogue import FORMATS
from rankscope.factorize.formats.plain import DENSE


def usage_of(model: nn.Module, *example: Tensor) -> Usage:
    return observe(model, read_sites(model).sites, example)


def test_every_kind_of_layer_is_counted_on_its_own_inputs() -> None:
    assert usage_of(nn.Linear(4, 5), torch.zeros(2, 3, 4)).calls == {"": (Call(6),)}
    assert usage_of(nn.Embedding(9, 5), torch.zeros(2, 7, dtype=torch.long)).calls == {
        "": (Call(14),)
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
    packed = nn.utils.rnn.pack_sequence([torch.zeros(3, 4), torch.zeros(2, 4)])
    rnn = nn.LSTM(4, 6)
    assert observe(rnn, read_sites(rnn).sites, (packed,)).calls == {
        "weight_ih_l0": (Call(5),),
        "weight_hh_l0": (Call(5, steps=3),),
    }


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
    assert "unused" not in usage.reached
    # A multiply-add is two operations, and there are two calls.
    assert usage.other_flops == 2 * 3 * 4 * 3
    (used, _) = read_sites(model).sites
    assert flops(used, DENSE, (), usage.calls["used"]) == 2 * 2 * 3 * 16
    assert flops(used, FORMATS["svd"], (1,), usage.calls["used"]) == 2 * 2 * 3 * 8


def test_looking_up_takes_no_products_dense_and_few_factorized() -> None:
    (site,) = read_sites(nn.Embedding(50, 8)).sites
    assert flops(site, DENSE, (), (Call(10),)) == 0
    assert flops(site, FORMATS["svd"], (3,), (Call(10),)) == 10 * 2 * 3 * 8


def test_an_example_that_does_not_fit_is_refused_with_its_shape() -> None:
    with pytest.raises(CompressionError, match=r"\(shape \(2, 5\), torch.float32\)"):
        observe(nn.Linear(4, 4), (), torch.zeros(2, 5))
    with pytest.raises(CompressionError, match=r"shapes \(2, 5\), \(3,\)"):
        observe(nn.Linear(4, 4), (), (torch.zeros(2, 5), torch.zeros(3)))


def test_hooks_are_gone_and_the_mode_is_back_after_watching() -> None:
    model = Twice().train()
    usage_of(model, torch.zeros(3, 4))
    assert model.training
    assert not model.used._forward_pre_hooks
    assert not model.used._forward_hooks


@pytest.mark.parametrize(
    ("module", "call", "format", "ranks"),
    [
        (nn.Linear(8, 8), Call(6, steps=2), "svd", (2,)),
        (nn.Embedding(20, 8), Call(6), "svd", (2,)),
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
