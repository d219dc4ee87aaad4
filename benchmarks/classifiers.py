"""The inner steps of a tensor-train classifier, forward and backward, beside the einsum loop."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from benchmarks.timing import time_ratio
from rankscope.networks.classifiers import carry_through_train

NAME = "classifiers"
SIZE = BOND = 32
BATCH = 64
LENGTHS = (16, 49)
Contract = Callable[[Tensor, Tensor, Tensor], Tensor]


def run() -> Iterator[dict[str, object]]:
    torch.manual_seed(0)
    for has_equal_cores in (True, False):
        for steps in LENGTHS:
            yield training_step(steps, has_equal_cores=has_equal_cores)
    yield linearity()


def training_step(steps: int, *, has_equal_cores: bool) -> dict[str, object]:
    """Ours over the einsum loop, and over outer products left to autograd."""
    arguments = inputs(steps, has_equal_cores=has_equal_cores)
    ours, loop, outer = (step(way, arguments) for way in (rescaled, einsum_loop, outer_products))
    require_equal(ours(), loop())
    require_equal(outer(), loop())
    ratio, seconds = time_ratio(ours, loop, repeats=41)
    outer_ratio, _ = time_ratio(outer, loop, repeats=21)
    return {
        "case": f"{steps} steps, {'equal' if has_equal_cores else 'different'} cores, "
        f"size {SIZE}, bond {BOND}, batch {BATCH}",
        "ours_over_einsum": round(ratio, 3),
        "outer_over_einsum": round(outer_ratio, 3),
        "ours_s": round(seconds, 5),
    }


def linearity() -> dict[str, object]:
    """Time of 98 steps over that of 49: 2 if it is linear in the length."""
    short, long = (step(rescaled, inputs(steps, has_equal_cores=True)) for steps in (49, 98))
    ratio, seconds = time_ratio(long, short, repeats=21)
    return {"case": "98 steps over 49, equal cores", "ratio": round(ratio, 3), "long_s": seconds}


def inputs(steps: int, *, has_equal_cores: bool) -> tuple[Tensor, Tensor, Tensor]:
    features = torch.randn(steps, BATCH, SIZE)
    cores = torch.randn(1 if has_equal_cores else steps, BOND, SIZE, BOND) / steps / BOND
    cores[:, :, 0] += torch.eye(BOND)
    features[:, :, 0] = 1
    return tuple(  # type: ignore[return-value]
        part.requires_grad_() for part in (torch.randn(BATCH, BOND), features, cores)
    )


def step(way: Contract, arguments: tuple[Tensor, Tensor, Tensor]) -> Callable[[], list[Tensor]]:
    def run_once() -> list[Tensor]:
        value = way(*arguments)
        return [value.detach(), *torch.autograd.grad(value.square().sum(), arguments)]

    return run_once


def rescaled(state: Tensor, features: Tensor, cores: Tensor) -> Tensor:
    last, log_scale = carry_through_train(state, features, cores)
    return last * log_scale.exp()[:, None]


def einsum_loop(state: Tensor, features: Tensor, cores: Tensor) -> Tensor:
    for number in range(len(features)):
        core = cores[number % len(cores)]
        state = torch.einsum("bi,bf,ifj->bj", state, features[number], core)
    return state


def outer_products(state: Tensor, features: Tensor, cores: Tensor) -> Tensor:
    matrices = cores.reshape(-1, BOND * SIZE, BOND)
    for number in range(len(features)):
        outer = state[:, :, None] * features[number][:, None, :]
        state = outer.flatten(1) @ matrices[number % len(cores)]
    return state


def require_equal(outputs: list[Tensor], wanted: list[Tensor]) -> None:
    for one, other in zip(outputs, wanted, strict=True):
        error = float((one - other).norm() / other.norm())
        assert error < 1e-5, f"relative error {error}"
