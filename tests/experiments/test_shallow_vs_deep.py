import pytest

from rankscope.experiments.classifiers import (
    DIGITS,
    FORMS,
    MNIST_PATCHES,
    SHALLOW_VS_DEEP,
    SIZES,
    SMALL_DIGITS_PATCHES,
    ClassifierEntry,
    Form,
)


def num_parameters(form: Form, budget: int) -> int:
    features = (SMALL_DIGITS_PATCHES if budget == DIGITS else MNIST_PATCHES)()
    return sum(parameter.numel() for parameter in form(features, num_classes=10).parameters())


@pytest.mark.parametrize("budget", SIZES)
def test_every_form_has_the_largest_size_within_the_parameters(budget: int) -> None:
    for form, size in zip(FORMS, SIZES[budget], strict=True):
        assert num_parameters(form(size), budget) <= budget
        assert num_parameters(form(size + 1), budget) > budget


@pytest.mark.parametrize("budget", SIZES)
def test_no_form_uses_less_than_nine_tenths_of_the_parameters(budget: int) -> None:
    for form, size in zip(FORMS, SIZES[budget], strict=True):
        assert num_parameters(form(size), budget) > 0.9 * budget


def test_the_table_has_every_form_on_digits_and_at_two_sizes_on_mnist() -> None:
    entries = [entry for entry in SHALLOW_VS_DEEP.entries if isinstance(entry, ClassifierEntry)]
    assert [entry.data_set for entry in entries] == ["digits"] * 5 + ["mnist"] * 10
    assert [entry.name for entry in entries[5:8]] == [
        "mnist-15k-shallow",
        "mnist-15k-train",
        "mnist-15k-equal-train",
    ]
    assert all(isinstance(entry, ClassifierEntry) for entry in SHALLOW_VS_DEEP.quick)
