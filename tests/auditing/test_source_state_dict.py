import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from rankscope.auditing import StateDict
from rankscope.errors import ModelFileError
from rankscope.tensor_files import TensorEntry


def test_entries_are_the_tensors_in_their_order() -> None:
    state = {"b": torch.ones(2, 3), "epoch": 3, "a": torch.zeros(0, 4, dtype=torch.int32)}
    assert StateDict(state, who="here").entries == (
        TensorEntry("b", (2, 3), "float32"),
        TensorEntry("a", (0, 4), "int32"),
    )


@settings(deadline=None)
@given(st.lists(st.integers(0, 3), min_size=1, max_size=8))
def test_names_of_one_tensor_share_one_entry(owners: list[int]) -> None:
    tensors = [torch.full((2,), float(number)) for number in range(4)]
    state = {f"name{at}": tensors[owner] for at, owner in enumerate(owners)}
    source = StateDict(state, who="here")
    groups = {
        owner: [f"name{at}" for at, other in enumerate(owners) if other == owner]
        for owner in dict.fromkeys(owners)
    }
    found = [[entry.name, *entry.tied_names] for entry in source.entries]
    assert found == list(groups.values())
    for entry in source.entries:
        assert source.read(entry.name).equal(state[entry.name])


def test_views_that_differ_are_not_tied() -> None:
    whole = torch.arange(6.0)
    square = torch.arange(4.0).view(2, 2)
    state = {
        "whole": whole,
        "start": whole[:3],
        "even": whole[::2],
        "bits": whole.view(torch.int32),
        "square": square,
        "transposed": square.T,
    }
    assert [entry.tied_names for entry in StateDict(state, who="here").entries] == [()] * 6


def test_empty_tensors_are_not_tied_by_having_no_memory() -> None:
    state = {"a": torch.ones(0), "b": torch.ones(0)}
    assert [entry.name for entry in StateDict(state, who="here").entries] == ["a", "b"]


def test_a_tensor_is_read_without_its_gradient() -> None:
    weight = nn.Parameter(torch.ones(2))
    read = StateDict({"w": weight}, who="here").read("w")
    assert not read.requires_grad
    assert read.data_ptr() == weight.data_ptr()


def test_tensors_on_the_meta_device_are_listed_and_tied_but_not_read() -> None:
    first, second = (nn.Parameter(torch.ones(2, device="meta")) for _ in range(2))
    source = StateDict({"a": first, "b": second, "c": first}, who="here")
    assert [(entry.name, entry.tied_names) for entry in source.entries] == [
        ("a", ("c",)),
        ("b", ()),
    ]
    with pytest.raises(ModelFileError, match="here: tensor 'b' is on the meta device"):
        source.read("b")


def test_tensors_that_are_sparse_or_have_no_shape_are_refused() -> None:
    with pytest.raises(ModelFileError, match=r"tensor 's' is torch\.sparse_coo; only dense"):
        StateDict({"s": torch.eye(2).to_sparse()}, who="here")
    lazy = nn.LazyLinear(3).state_dict(keep_vars=True)
    with pytest.raises(ModelFileError, match="tensor 'weight' has no shape before"):
        StateDict(lazy, who="here")
