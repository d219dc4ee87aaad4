import copy
import math

import pytest
import torch

from rankscope.errors import LayerError
from rankscope.factorize import FORMATS, CoreStore, Format, WeightShape, checked_cores, random_cores

BITS = pytest.mark.parametrize("bits", [None, 8, 4])
FORMAT = pytest.mark.parametrize("format", FORMATS.values(), ids=lambda format: format.name)


def _store(bits: int | None, seed: int = 0) -> CoreStore:
    generator = torch.Generator().manual_seed(seed)
    store = CoreStore(
        {
            "right": torch.randn(3, 70, generator=generator),
            "left": torch.randn(5, 3, 2, generator=generator),
        }
    )
    if bits is not None:
        store.quantize(bits)
    return store


def test_cores_are_parameters_in_the_order_given() -> None:
    store = _store(None)
    assert [name for name, _ in store.named_parameters()] == ["right", "left"]
    assert list(store.tensors()) == ["right", "left"]
    assert all(tensor.requires_grad for tensor in store.tensors().values())


def test_the_tensors_given_are_copied() -> None:
    tensor = torch.zeros(2, 2)
    store = CoreStore({"core": tensor})
    tensor += 1
    assert not store.tensors()["core"].any()


@pytest.mark.parametrize("bits", [8, 4])
def test_quantized_cores_are_near_and_no_longer_parameters(bits: int) -> None:
    plain, quantized = _store(None).tensors(), _store(bits)
    assert list(quantized.parameters()) == []
    for name, tensor in quantized.tensors().items():
        # Half a step of a scale that spans the largest entry.
        limit = float(plain[name].detach().abs().max()) / {8: 127, 4: 7}[bits] / 2
        assert float((tensor - plain[name]).detach().abs().max()) <= limit * (1 + 1e-6)


@BITS
def test_state_goes_round(bits: int | None) -> None:
    first, second = _store(bits, seed=1), _store(bits, seed=2)
    second.load_state_dict(first.state_dict())
    for one, other in zip(first.tensors().values(), second.tensors().values(), strict=True):
        assert torch.equal(one, other)


def test_state_of_other_bits_is_not_loaded() -> None:
    with pytest.raises(RuntimeError, match="right_codes"):
        _store(None).load_state_dict(_store(8).state_dict())


@BITS
def test_a_copy_has_cores_of_its_own(bits: int | None) -> None:
    store = _store(bits)
    twin = copy.deepcopy(store)
    before = {name: tensor.clone() for name, tensor in twin.tensors().items()}
    with torch.no_grad():
        for tensor in (*store.parameters(), *store.buffers()):
            tensor.zero_()
    assert all(torch.equal(twin.tensors()[name], before[name]) for name in before)


@BITS
def test_another_dtype_reaches_the_cores(bits: int | None) -> None:
    tensors = _store(bits).double().tensors()
    assert {tensor.dtype for tensor in tensors.values()} == {torch.float64}


@pytest.mark.parametrize(
    ("bits", "num_bytes"),
    # 3 x 70 and 5 x 6 numbers: codes (35 and 3 bytes a row in 4 bits), then scales of 4 bytes.
    [(None, 4 * 240), (8, 240 + 4 * 8), (4, 3 * 35 + 5 * 3 + 4 * (3 * 3 + 5))],
)
def test_everything_stored_is_counted(bits: int | None, num_bytes: int) -> None:
    store = _store(bits)
    assert store.num_bytes == num_bytes
    assert store.num_parameters == 240


def test_the_printed_form_says_shapes_and_bits() -> None:
    assert repr(_store(None)) == "CoreStore(right (3, 70), left (5, 3, 2))"
    assert repr(_store(4)) == "CoreStore(right (3, 70), left (5, 3, 2), 4 bits)"


def test_cores_are_quantized_once() -> None:
    with pytest.raises(LayerError, match="already quantized in 8 bits, got 4"):
        _store(8).quantize(4)


@FORMAT
def test_random_cores_give_a_weight_of_the_variance_of_pytorch(format: Format) -> None:
    torch.manual_seed(0)
    shape = WeightShape(24, 16, (3, 3))
    ranks = (4,) * len(format.max_ranks(shape))
    drawn = [
        format.to_dense(random_cores(format, shape, ranks, dtype=torch.float64), shape)
        for _ in range(100)
    ]
    variance = torch.stack(drawn).square().mean()
    # Entries share cores, so that the mean converges slowly: 100 draws give about a tenth.
    assert float(variance) == pytest.approx(1 / (3 * 16 * 9), rel=0.3)


def test_groups_stack_cores_along_the_first_position() -> None:
    shape = WeightShape(6, 5, (3, 2))
    cores = random_cores(FORMATS["svd"], shape, (2,), groups=4)
    assert {name: tuple(core.shape) for name, core in cores.items()} == {
        "right": (8, 5, 3),
        "left": (24, 2, 2),
    }
    assert list(checked_cores(FORMATS["svd"], shape, (2,), cores, groups=4)) == ["right", "left"]


def test_cores_of_another_shape_are_refused() -> None:
    cores = {"right": torch.ones(2, 3), "left": torch.ones(5, 2)}
    message = r"shape \(4, 3\) at ranks \(2,\) in 1 group.* needs .*'left': \(4, 2\).*got.*\(5, 2\)"
    with pytest.raises(LayerError, match=message):
        checked_cores(FORMATS["svd"], WeightShape(4, 3), (2,), cores)


def test_ranks_that_do_not_fit_are_refused() -> None:
    message = r"svd: a weight of shape \(4, 3\) needs 1 rank\(s\), from 1 to \(3,\), got \(4,\)"
    with pytest.raises(LayerError, match=message):
        random_cores(FORMATS["svd"], WeightShape(4, 3), (4,))
    assert math.prod(random_cores(FORMATS["svd"], WeightShape(4, 3), (3,))["left"].shape) == 12
