import copy
import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from rankscope.errors import LayerError
from rankscope.robust import (
    BlockReflector,
    Cayley,
    Householder,
    Identity,
    MatrixExponential,
    OrthogonalConv1d,
    OrthogonalConv2d,
    OrthogonalConvTranspose1d,
    OrthogonalConvTranspose2d,
    Permutation,
    Uniform,
)

PARAMETRIZATIONS = [Cayley(), BlockReflector(), MatrixExponential(), Householder()]
LAYERS: dict[tuple[int, bool], type[nn.Module]] = {
    (1, False): OrthogonalConv1d,
    (2, False): OrthogonalConv2d,
    (1, True): OrthogonalConvTranspose1d,
    (2, True): OrthogonalConvTranspose2d,
}


def moved(layer: nn.Module, seed: int = 0) -> nn.Module:
    """The layer in float64, away from where it started."""
    generator = torch.Generator().manual_seed(seed)
    layer.double()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    return layer


def singular_values(layer: nn.Module, shape: tuple[int, ...]) -> Tensor:
    """Of the full Jacobian: the layer is linear."""
    size = torch.Size(shape).numel()
    basis = torch.eye(size, dtype=torch.float64).reshape(size, *shape)
    with torch.no_grad():
        values: Tensor = torch.linalg.svdvals(layer(basis).flatten(1))
    return values


@settings(deadline=None, max_examples=120)
@given(st.data())
def test_all_singular_values_are_one(data: st.DataObject) -> None:
    axes = data.draw(st.sampled_from([1, 2]))
    is_transposed = data.draw(st.booleans())
    stride = data.draw(st.tuples(*[st.integers(1, 3)] * axes))
    kernel = tuple(data.draw(st.integers(s, 5)) for s in stride)
    dilation = tuple(1 if s > 1 else data.draw(st.integers(1, 2)) for s in stride)
    groups = data.draw(st.integers(1, 2))
    channels = [groups * data.draw(st.integers(1, 5)) for _ in range(2)]
    chosen = data.draw(st.sampled_from(PARAMETRIZATIONS))
    layer = moved(
        LAYERS[axes, is_transposed](
            *channels,
            kernel,
            stride=stride,
            dilation=dilation,
            groups=groups,
            bias=False,
            parametrization=chosen,
            initialization=data.draw(st.sampled_from([Uniform(), Permutation(), Identity()])),
        )
    )
    sizes = tuple(data.draw(st.integers(1, 3)) * (1 if is_transposed else s) for s in stride)
    values = singular_values(layer, (channels[0], *sizes))
    torch.testing.assert_close(values, torch.ones_like(values), rtol=0, atol=1e-10)


@pytest.mark.parametrize(("initialization", "kernel"), [(Permutation(), 3), (Identity(), (5, 1))])
def test_paired_factors_cancel_so_that_only_the_middle_tap_is_left(
    initialization: Permutation | Identity, kernel: int | tuple[int, int]
) -> None:
    layer = OrthogonalConv2d(7, 7, kernel, initialization=initialization).double()
    weight = layer.weight()
    middle = weight[:, :, weight.shape[2] // 2, weight.shape[3] // 2]
    torch.testing.assert_close(middle.square().sum(), weight.square().sum())
    assert set(middle.round().flatten().tolist()) == {0.0, 1.0}
    if isinstance(initialization, Identity):
        torch.testing.assert_close(middle, torch.eye(7, dtype=middle.dtype), atol=1e-6, rtol=0)


@pytest.mark.parametrize(("kernel", "stride"), [(3, 1), (4, 2), (4, 1), (5, 2), (2, 2)])
def test_the_exported_convolution_is_the_same(kernel: int, stride: int) -> None:
    layer = moved(OrthogonalConv2d(4, 6, kernel, stride, groups=2))
    line = moved(OrthogonalConv1d(4, 6, kernel, stride))
    assert isinstance(layer, OrthogonalConv2d)
    assert isinstance(line, OrthogonalConv1d)
    images = torch.randn(2, 4, 8, 4, dtype=torch.float64)
    torch.testing.assert_close(layer.to_conv2d()(images), layer(images))
    torch.testing.assert_close(line.to_conv1d()(images[..., 0]), line(images[..., 0]))


def test_zero_padding_never_raises_a_norm_and_full_padding_keeps_it() -> None:
    zeros = moved(OrthogonalConv2d(3, 3, 3, padding=1, padding_mode="zeros", bias=False))
    assert singular_values(zeros, (3, 4, 4)).max() <= 1 + 1e-12
    full = moved(OrthogonalConv2d(3, 4, 3, padding=2, padding_mode="zeros", bias=False))
    values = singular_values(full, (3, 4, 4))
    torch.testing.assert_close(values, torch.ones_like(values))


def test_uneven_zero_padding_is_exported_too() -> None:
    layer = moved(OrthogonalConv2d(3, 3, 2, padding_mode="zeros"))
    assert isinstance(layer, OrthogonalConv2d)
    images = torch.randn(1, 3, 4, 4, dtype=torch.float64)
    torch.testing.assert_close(layer.to_conv2d()(images), layer(images))


def test_the_transposed_layer_is_the_adjoint() -> None:
    for kernel, stride in itertools.product((2, 3, 5), (1, 2)):
        forward = moved(OrthogonalConv2d(2, 3, kernel, stride, bias=False))
        backward = OrthogonalConvTranspose2d(3, 2, kernel, stride, bias=False).double()
        backward.load_state_dict(forward.state_dict())
        inputs = torch.randn(1, 2, 4, 6, dtype=torch.float64)
        outputs = forward(inputs)
        probe = torch.randn_like(outputs)
        torch.testing.assert_close((outputs * probe).sum(), (inputs * backward(probe)).sum())


def test_the_kept_kernel_follows_every_change() -> None:
    layer = OrthogonalConv2d(4, 4, 3).eval()
    with torch.no_grad():
        first = layer.weight()
        assert layer.weight() is first
        next(layer.kernel.parameters()).data.add_(0.1)  # which no version counter sees
        second = layer.weight()
        assert not torch.equal(first, second)
        layer.load_state_dict(OrthogonalConv2d(4, 4, 3).state_dict())
        assert not torch.equal(second, layer.weight())
        assert layer.double().weight().dtype == torch.float64
    assert copy.deepcopy(layer).weight().requires_grad


def test_the_kernel_is_built_in_full_precision_under_autocast() -> None:
    layer = OrthogonalConv2d(8, 8, 3, bias=False)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        kernel = layer.weight()
        assert layer(torch.randn(1, 8, 4, 4)).dtype == torch.bfloat16
    assert kernel.dtype == torch.float32


def test_it_is_exported() -> None:
    layer = OrthogonalConv2d(4, 4, 3).eval()
    inputs = torch.randn(2, 4, 6, 6)
    exported = torch.export.export(layer, (inputs,)).module()
    torch.testing.assert_close(exported(inputs), layer(inputs))


@pytest.mark.slow
@pytest.mark.usefixtures("compilable")
def test_it_compiles_as_one_graph() -> None:
    layer, inputs = OrthogonalConv2d(4, 4, 3).eval(), torch.randn(2, 4, 6, 6)
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(inputs), layer(inputs))


def test_what_a_reader_sees() -> None:
    assert "kernel_size=(3, 3), stride=(2, 2)" in repr(OrthogonalConv2d(4, 16, 3, 2))


def test_settings_that_cannot_keep_norms_are_refused() -> None:
    with pytest.raises(LayerError, match=r"kernel \(1, 1\) and stride \(2, 2\) skips inputs"):
        OrthogonalConv2d(4, 4, 1, 2)
    with pytest.raises(LayerError, match=r"stride \(2, 2\) and dilation \(2, 2\)"):
        OrthogonalConv2d(4, 4, 4, 2, dilation=2)
    with pytest.raises(LayerError, match="got 5 channels and 2 groups"):
        OrthogonalConv2d(5, 4, 3, groups=2)
    with pytest.raises(LayerError, match="'circular' or 'zeros', got 'reflect'"):
        OrthogonalConv2d(4, 4, 3, padding_mode="reflect")
    with pytest.raises(LayerError, match=r"must be \(\(1, 1\), \(1, 1\)\), .*; got padding 2"):
        OrthogonalConv2d(4, 4, 3, padding=2)
    with pytest.raises(LayerError, match="kernel_size needs 2 numbers of at least 1, got 0"):
        OrthogonalConv2d(4, 4, 0)
    with pytest.raises(LayerError, match=r"stride \(2, 2\) must divide the input's sizes \(5, 4\)"):
        OrthogonalConv2d(4, 16, 2, 2)(torch.zeros(1, 4, 5, 4))
    with pytest.raises(LayerError, match=r"\(batch, 4, 2 sizes\), got \(1, 3, 4, 4\)"):
        OrthogonalConv2d(4, 4, 3)(torch.zeros(1, 3, 4, 4))
