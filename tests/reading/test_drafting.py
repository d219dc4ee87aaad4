import pytest
import torch
from torch import Tensor, nn

from rankscope.diagrams import Network, Role, diagrams_of, to_module
from rankscope.errors import SizeError, UnsupportedModuleError
from rankscope.reading import (
    ArrayView,
    Draft,
    Drafting,
    Operand,
    from_module,
    guess,
    permuted,
    scaled,
    whole,
)
from rankscope.reading.views import FEATURE


def data(name: str, *shape: int) -> ArrayView:
    return whole(name, shape, guess(len(shape)), Role.DATA)


def run(notebook: Drafting, result: ArrayView, **inputs: Tensor) -> Tensor:
    value: Tensor = to_module(finished(notebook, "test", result))(**inputs)
    return value


def finished(book: Drafting, name: str, value: ArrayView) -> Network:
    """The network whose value is `value`, copied if it is not the last step as it is."""
    shapes = book.steps[-1].arrays if book.steps else {}
    if not value.is_plain or shapes.get(value.array) != value.shape:
        value = book.whole_copy("output", value)
    return Network(name, tuple(book.steps), outputs=(value.array,))


def test_cuts_that_cross_are_copied_first() -> None:
    """Six as 2 times 3 and as 3 times 2 have no common cut unless one of them is copied."""
    first, second = data("a", 2, 3), data("b", 2, 3)
    notebook = Drafting()
    operands = (
        Operand("A", notebook.reshape("r", permuted(first, (1, 0)), (6,)), ("i",)),
        Operand("B", notebook.reshape("r", second, (6,)), ("i",)),
    )
    result = notebook.compute("product", Draft(operands, ("i",)))
    a, b = torch.randn(2, 3), torch.randn(2, 3)
    assert [step.name for step in notebook.steps] == ["product.copy", "product"]
    torch.testing.assert_close(run(notebook, result, a=a, b=b), a.T.reshape(6) * b.reshape(6))


def test_a_reshape_copies_only_what_it_must() -> None:
    notebook = Drafting()
    value = data("x", 2, 3, 4)
    notebook.reshape("free", value, (6, -1))
    assert not notebook.steps
    notebook.reshape("copied", permuted(value, (2, 1, 0)), (8, 3))
    assert [step.name for step in notebook.steps] == ["copied"]


@pytest.mark.parametrize("shape", [(5, 5), (7, -1), (-1, -1), (0, -1)])
def test_a_reshape_to_another_number_of_entries_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(SizeError, match=r"x: 24 entries do not fit the shape \("):
        Drafting().reshape("x", data("x", 2, 3, 4), shape)


def test_names_of_steps_are_made_different() -> None:
    notebook = Drafting(reserved={"x"})
    notebook.copied("x", data("x", 2))
    notebook.copied("x", data("x", 2))
    assert [step.name for step in notebook.steps] == ["x2", "x3"]


def test_parts_of_one_axis_share_a_copy() -> None:
    notebook = Drafting()
    value = data("x", 2, 6)
    parts = [notebook.narrow("part", value, 1, span) for span in ((0, 2), (2, 6))]
    assert [step.name for step in notebook.steps] == ["part"]
    assert [part.rows for part in parts] == [(0, 2), (2, 6)]
    x = torch.randn(2, 6)
    torch.testing.assert_close(run(notebook, parts[1], x=x), x[:, 2:])


def test_rows_of_rows_count_from_the_first() -> None:
    notebook = Drafting()
    outer = notebook.narrow("part", data("x", 6, 2), 0, (2, 6))
    inner = notebook.narrow("part", outer, 0, (1, 3))
    assert inner.rows == (3, 5)
    assert not notebook.steps
    cut = notebook.reshape("cut", data("x", 6, 2), (3, 2, 2))
    assert notebook.narrow("part", cut, 0, (1, 2)).rows == (2, 4)


def test_a_factor_that_is_left_over_becomes_a_coefficient() -> None:
    notebook = Drafting()
    x = torch.randn(3)
    result = scaled(notebook.copied("copy", data("x", 3)), -2.5)
    torch.testing.assert_close(run(notebook, result, x=x), -2.5 * x)


def test_an_open_leg_that_nothing_holds_is_held_by_ones() -> None:
    notebook = Drafting()
    short = whole("b", (3,), (FEATURE,), Role.DATA)
    result = notebook.add("sum", (data("x", 2, 3), short, 1.5), (1.0, -1.0, 2.0))
    first, second, third = diagrams_of(notebook.steps[0].body)
    assert len(first.nodes) == 1
    assert second.node_by_name["ones"].indices == ("b",)
    assert third.node_by_name["ones"].indices == ("b", "f")
    x, b = torch.randn(2, 3), torch.randn(3)
    torch.testing.assert_close(run(notebook, result, x=x, b=b), x - b + 3.0)


def test_the_last_step_has_the_axes_of_the_result_in_their_order() -> None:
    """Also where the sizes do not tell a transpose from the original."""
    notebook = Drafting()
    x = torch.randn(3, 3)
    result = permuted(notebook.copied("copy", data("x", 3, 3)), (1, 0))
    torch.testing.assert_close(run(notebook, result, x=x), x.T)
    assert [step.name for step in notebook.steps] == ["copy", "output"]


class Masked(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        mask = torch.ones(x.shape[-2:], dtype=torch.bool).triu(1)
        return x.masked_fill(mask, -float("inf")).sum()


def test_a_mask_is_for_a_function_only() -> None:
    with pytest.raises(UnsupportedModuleError, match="must be followed by a function such as soft"):
        from_module(Masked(), (4, 4))
