import torch

from rankscope.layers.formats.finishing import finished


def test_norms_are_evened_and_the_product_stays() -> None:
    torch.manual_seed(0)
    cores = {
        "a": 1e-30 * torch.randn(3, 4, dtype=torch.float64),
        "b": 1e35 * torch.randn(4, 5, dtype=torch.float64),
    }
    shapes = {"a": (3, 6), "b": (6, 5)}
    found = finished(cores, shapes, torch.float64)
    assert {name: tuple(core.shape) for name, core in found.items()} == shapes
    torch.testing.assert_close(found["a"].norm(), found["b"].norm())
    torch.testing.assert_close(found["a"] @ found["b"], cores["a"] @ cores["b"])


def test_one_core_of_zeros_makes_all_of_them_zero() -> None:
    cores = {"a": torch.zeros(2, 2), "b": torch.ones(2, 2)}
    found = finished(cores, {"a": (2, 2), "b": (2, 2)}, torch.bfloat16)
    assert not any(core.any() for core in found.values())
    assert found["b"].dtype == torch.bfloat16
