import inspect
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.errors import FamilyError, RankscopeError
from rankscope.rank import CATALOGUE, build
from rankscope.rank.networks.catalogue import Edges
from rankscope.strict_json import Choice, Either, Integer, ListOf, Optional, Reader

SMALL: dict[str, dict[str, Any]] = {
    "attention": {
        "depth": 2,
        "width": 2,
        "heads": 1,
        "head_size": 2,
        "num_tokens": 4,
        "embedding_rank": None,
        "degree": 3,
        "output_position": 0,
        "has_positions": False,
    },
    "tensor-train": {"order": 4, "size": 2, "bond": (2, 3, 2), "has_equal_cores": False},
    "shallow": {"order": 4, "size": 2, "channels": 3},
    "convolutional": {
        "num_tokens": 4,
        "window": 2,
        "num_templates": 2,
        "channels": (2, 2),
        "is_shared": False,
        "pooling": None,
    },
    "recurrent": {
        "num_tokens": 4,
        "num_templates": 2,
        "channels": 2,
        "depth": 2,
        "on_templates": True,
    },
    "polynomial": {"num_inputs": 4, "degree": 2, "depth": 2, "width": 4},
    "mixed-polynomial": {"num_inputs": 4, "width": 3, "degrees": (2, 2), "raised": (1, 0)},
    "mixer": {
        "num_tokens": 3,
        "input_size": 2,
        "width": 2,
        "token_hidden": 2,
        "channel_hidden": 3,
        "depth": 1,
        "degree": 2,
    },
    "polynomial-transformer": {
        "depth": 2,
        "width": 4,
        "heads": 2,
        "head_size": 2,
        "num_kv_heads": 1,
        "latent": 3,
        "query_latent": None,
        "is_causal": True,
        "has_rotary": True,
        "has_positions": False,
        "has_residual": True,
        "gated": 3,
        "num_tokens": 4,
        "output_position": 3,
    },
    "recurrence": {
        "kind": "delta",
        "depth": 2,
        "width": 2,
        "state": 3,
        "heads": 2,
        "has_input_rate": True,
        "num_tokens": 4,
        "output_position": 3,
    },
    "graph": {
        "edges": ((0, 1), (1, 2)),
        "depth": 2,
        "width": 2,
        "num_vertices": 4,
        "vertex": None,
    },
    "sparse-polynomial": {"terms": ((1, 0, 2), (0, 1, 1))},
}


def values_of(kind: Reader[Any]) -> st.SearchStrategy[Any]:  # noqa: PLR0911 - one for each kind
    """Small values of a kind."""
    if isinstance(kind, Edges):
        return values_of(kind.listed)
    if isinstance(kind, Optional):
        return st.none() | values_of(kind.something)
    if isinstance(kind, Either):
        return values_of(kind.first) | values_of(kind.second)
    if isinstance(kind, Choice):
        return st.sampled_from(kind.options)
    if isinstance(kind, ListOf):
        return st.lists(values_of(kind.item), max_size=4).map(tuple)
    return st.integers(kind.low, 6) if isinstance(kind, Integer) else st.booleans()


@pytest.mark.parametrize("family", CATALOGUE)
def test_every_family_is_built_from_its_settings(family: str) -> None:
    network = build(family, SMALL[family])
    assert network.family == family
    assert network.settings == SMALL[family]


@pytest.mark.parametrize("family", CATALOGUE)
def test_the_settings_are_the_arguments_of_the_class(family: str) -> None:
    entry = CATALOGUE[family]
    arguments = set(inspect.signature(entry.network_class()).parameters)
    assert set(entry.settings) == arguments - {"generator"}


@pytest.mark.parametrize("family", CATALOGUE)
@settings(deadline=None, max_examples=40)
@given(data=st.data())
def test_settings_that_contradict_each_other_are_errors_of_ours(
    family: str, data: st.DataObject
) -> None:
    kinds = CATALOGUE[family].settings
    chosen = {name: data.draw(values_of(kind), label=name) for name, kind in kinds.items()}
    try:
        network = build(family, chosen)
    except RankscopeError:
        return
    assert network.settings == chosen


@pytest.mark.parametrize("family", CATALOGUE)
@pytest.mark.parametrize(
    "value", [-1, 2**31, True, None, "1", 1.0, (), (0,) * 300, ((((1,),),),), [1], {}]
)
def test_no_setting_takes_everything(family: str, value: object) -> None:
    for name, kind in CATALOGUE[family].settings.items():
        if not kind.fits(value):
            with pytest.raises(FamilyError, match=rf"{family}, at {name}.*: wanted .*, got "):
                build(family, {**SMALL[family], name: value})


def test_an_unknown_family_is_refused() -> None:
    with pytest.raises(
        FamilyError, match=r"no family .os\.system.; there are attention, tensor-tra"
    ):
        build("os.system", {})


def test_unknown_and_missing_settings_are_refused() -> None:
    with pytest.raises(
        FamilyError, match="at top: wanted only the keys order, size, channels, got 'g"
    ):
        build("shallow", {**SMALL["shallow"], "generator": None})
    with pytest.raises(FamilyError, match="shallow, at top: size, channels are missing"):
        build("shallow", {"order": 3})


def test_settings_are_given_in_full() -> None:
    with pytest.raises(FamilyError, match=r"wanted the settings in full, .*'width': 4.*, got .*No"):
        build("polynomial", {**SMALL["polynomial"], "width": None})


def test_an_output_of_astronomic_degree_is_refused() -> None:
    with pytest.raises(FamilyError, match="degree 4096 at most, got 18446744073709551616"):
        build("polynomial", {"num_inputs": 2, "degree": 16, "depth": 16, "width": 2})
    with pytest.raises(FamilyError, match="degree 8192 at most, got 43046721"):
        build("attention", {**SMALL["attention"], "depth": 16})


def largest(kind: Reader[Any]) -> Any:
    if isinstance(kind, Optional):
        return largest(kind.something)
    if isinstance(kind, Either):
        return largest(kind.first)
    if isinstance(kind, Choice):
        return kind.options[0]
    return kind.high if isinstance(kind, Integer) else False


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "changes"),
    [
        ("attention", {"degree": 3}),
        ("tensor-train", {}),
        ("shallow", {}),
        ("convolutional", {"pooling": None, "window": 2, "channels": (256,) * 8}),
        ("recurrent", {}),
        ("polynomial", {}),
        ("mixed-polynomial", {"degrees": (16,) * 16, "raised": (255,) * 16}),
        ("mixer", {}),
        ("polynomial-transformer", {}),
        ("recurrence", {"kind": "selective"}),
        ("recurrence", {"kind": "delta", "has_input_rate": True}),
    ],
)
def test_the_largest_settings_do_not_fill_the_memory(family: str, changes: dict[str, Any]) -> None:
    """Weights in single precision stay below a gigabyte; the meta device allocates none."""
    entry = CATALOGUE[family]
    chosen = {name: largest(kind) for name, kind in entry.settings.items()} | changes
    with torch.device("meta"):
        network = entry.network_class()(**chosen)
    assert 4 * sum(parameter.numel() for parameter in network.parameters()) <= 2**30
