"""The inner steps of a train against the plain einsum."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from rankscope.errors import SizeError
from rankscope.networks import carry_through_train
from rankscope.networks import classifiers as train_step


def plain(state: Tensor, features: Tensor, cores: Tensor) -> Tensor:
    for step, feature in enumerate(features):
        state = torch.einsum("bl,bi,lir->br", state, feature, cores[step % len(cores)])
    return state


def rescaled_back(state: Tensor, features: Tensor, cores: Tensor) -> Tensor:
    last, log_scale = carry_through_train(state, features, cores)
    return last * log_scale.exp()[:, None]


def drawn(
    steps: int, batch: int, size: int, bond: int, *, has_equal_cores: bool, scale: float = 1.0
) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(steps + 10 * batch)
    shapes = (
        (batch, bond),
        (steps, batch, size),
        (1 if has_equal_cores else steps, bond, size, bond),
    )
    state, features, cores = (
        torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes
    )
    return state, features, cores * scale


@settings(deadline=None, max_examples=30)
@given(
    steps=st.integers(1, 7),
    batch=st.integers(1, 4),
    size=st.integers(1, 3),
    bond=st.integers(1, 4),
    has_equal_cores=st.booleans(),
    at_once=st.integers(1, 12),
)
def test_values_and_gradients_are_those_of_the_plain_contraction(
    steps: int, batch: int, size: int, bond: int, has_equal_cores: bool, at_once: int
) -> None:
    arguments = drawn(steps, batch, size, bond, has_equal_cores=has_equal_cores)
    found, wanted = (
        [argument.clone().requires_grad_() for argument in arguments] for _ in range(2)
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(train_step, "_ROWS", at_once)
        value = rescaled_back(*found)
        weights = torch.linspace(0.3, 1.7, value.numel(), dtype=torch.float64).view_as(value)
        (value * weights).sum().backward()  # type: ignore[no-untyped-call]
    expected = plain(*wanted)
    (expected * weights).sum().backward()  # type: ignore[no-untyped-call]
    torch.testing.assert_close(value, expected)
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one.grad, other.grad)


@pytest.mark.parametrize("factor", [1e-30, 1e30])
def test_sixty_four_steps_neither_overflow_nor_vanish_in_float32(factor: float) -> None:
    # Each step multiplies by about this factor: float32 alone would end after two steps.
    state, features, cores = (
        part.float() for part in drawn(64, 2, 3, 4, has_equal_cores=True, scale=1.0)
    )
    last, log_scale = carry_through_train(state, features, cores * factor)
    reference, log_reference = carry_through_train(state, features, cores)
    torch.testing.assert_close(last, reference * factor, rtol=1e-4, atol=0.0)
    shift = torch.full_like(log_scale, 63 * math.log(factor))
    torch.testing.assert_close(log_scale - log_reference, shift, rtol=1e-4, atol=0.0)


def test_a_state_of_zeros_stays_zero_without_a_nan_in_its_gradient() -> None:
    state, features, cores = drawn(3, 2, 2, 3, has_equal_cores=False)
    state = torch.zeros_like(state).requires_grad_()
    value = rescaled_back(state, features, cores)
    value.sum().backward()  # type: ignore[no-untyped-call]
    assert state.grad is not None
    wanted = torch.zeros_like(state).requires_grad_()
    plain(wanted, features, cores).sum().backward()  # type: ignore[no-untyped-call]
    torch.testing.assert_close(value, torch.zeros_like(value))
    torch.testing.assert_close(state.grad, wanted.grad)


def test_the_backward_pass_may_be_run_twice() -> None:
    state, features, cores = drawn(3, 2, 2, 3, has_equal_cores=True)
    cores.requires_grad_()
    value = rescaled_back(state, features, cores).sum()
    first, second = (torch.autograd.grad(value, cores, retain_graph=True)[0] for _ in range(2))
    torch.testing.assert_close(first, second, rtol=0.0, atol=0.0)


@pytest.mark.parametrize("shape", [(2, 3, 2, 3), (5, 3, 2, 4), (5, 3, 1, 3)])
def test_cores_that_do_not_fit_are_refused(shape: tuple[int, ...]) -> None:
    state, features, _ = drawn(5, 2, 2, 3, has_equal_cores=True)
    with pytest.raises(SizeError, match=r"cores \(1 or 5, 3, 2, 3\), got cores"):
        carry_through_train(state, features, torch.ones(shape, dtype=torch.float64))


def test_a_state_of_another_batch_is_refused() -> None:
    state, features, cores = drawn(5, 2, 2, 3, has_equal_cores=True)
    with pytest.raises(SizeError, match=r"a state \(1, 3\) need a state \(2, bond\)"):
        carry_through_train(state[:1], features, cores)
