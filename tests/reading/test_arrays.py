import pytest
import torch
from torch import Tensor, nn

from rankscope.reading.arrays import Arrays, is_causal_mask, module_arrays
from rankscope.errors import UnsupportedModuleError


class Tables(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.position = nn.Parameter(torch.randn(1, 6, 4))
        self.register_buffer("fixed", torch.randn(6, 4), persistent=False)
        self.linear = nn.Linear(4, 4)
        self.tied = nn.Linear(4, 4)
        self.tied.weight = self.linear.weight

    fixed: Tensor


def test_arrays_are_parameters_and_buffers_without_leading_ones() -> None:
    arrays = module_arrays(Tables())
    assert {name: tuple(array.shape) for name, array in arrays.items()} == {
        "position": (6, 4),
        "linear.weight": (4, 4),
        "linear.bias": (4,),
        "tied.weight": (4, 4),
        "tied.bias": (4,),
        "fixed": (6, 4),
    }
    assert not any(array.requires_grad for array in arrays.values())


def test_a_shared_tensor_has_one_name() -> None:
    tables = Tables()
    assert Arrays(tables).value(tables.tied.weight).array == "linear.weight"


@pytest.mark.parametrize(("start", "stop", "rows"), [(0, 6, None), (0, 2, (0, 2)), (3, 6, (3, 6))])
def test_a_view_of_some_rows_is_found(start: int, stop: int, rows: tuple[int, int] | None) -> None:
    tables = Tables()
    arrays = Arrays(tables)
    value = arrays.value(tables.fixed[start:stop])
    assert (value.array, value.rows, value.shape) == ("fixed", rows, (stop - start, 4))
    value = arrays.value(tables.position.detach()[:, start:stop])
    assert (value.array, value.rows, value.shape) == ("position", rows, (1, stop - start, 4))


@pytest.mark.parametrize("part", ["columns", "stretch", "copy", "other"])
def test_a_tensor_that_is_not_rows_of_an_array_is_refused(part: str) -> None:
    tables = Tables()
    fixed = tables.fixed
    tensor = {
        "columns": fixed[:, :2],
        "stretch": fixed.flatten()[2:10],
        "copy": fixed.clone(),
        "other": torch.ones(3),
    }[part]
    shape = str(tuple(tensor.shape)).replace("(", r"\(").replace(")", r"\)")
    with pytest.raises(UnsupportedModuleError, match=rf"of shape {shape} is made inside forward"):
        Arrays(tables).value(tensor)


def test_only_the_lower_triangle_is_the_causal_mask() -> None:
    kept = torch.ones(3, 4, dtype=torch.bool).tril()
    added = torch.zeros(3, 4).masked_fill(~kept, -torch.inf)
    assert is_causal_mask(kept, true_is_kept=True)
    assert is_causal_mask(~kept[None, None], true_is_kept=False)
    assert is_causal_mask(added, true_is_kept=True)
    assert is_causal_mask(added, true_is_kept=False)
    assert not is_causal_mask(kept, true_is_kept=False)
    assert not is_causal_mask(kept.double(), true_is_kept=True)
    assert not is_causal_mask(kept.expand(2, 3, 4), true_is_kept=True)
    assert not is_causal_mask(kept[0], true_is_kept=True)
