"""The diagram workspace without a browser: edits in, views out."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import torch

from rankscope.diagrams import family, from_dict, from_einsum, to_dict
from rankscope.diagrams.families import tensor_train
from rankscope.drawing import View, keep_places, placed, render, to_svg
from rankscope.errors import LayoutError, RankscopeError, RequestError
from rankscope.page import Session, diagram_view
from rankscope.strict_json import Object, read_as


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    made = Session(None, tmp_path / "output")
    yield made
    made.close()


EDIT_ENDPOINT = Object({"edit": diagram_view.EDIT})


def edited(session: Session, **change: Any) -> Any:
    body = read_as(EDIT_ENDPOINT, {"edit": change}, who="The request", error=RequestError)
    return diagram_view.edit(session, body)


def exported(session: Session, ending: str) -> bytes:
    return diagram_view.export(session, {"format": ending}).content


def test_nothing_is_a_view_too(session: Session) -> None:
    view: Any = diagram_view.show(session, {})
    assert (view["tensors"], view["cost"], view["timeline"]) == ([], None, None)
    assert not view["can_undo"]
    names = [template["name"] for template in view["choices"]["templates"]]
    assert "multi-head" in names
    assert "sum-of-pure-tensors" not in names  # a sum of several diagrams
    assert diagram_view.code(session, {})["text"] == ""
    with pytest.raises(RequestError, match="nothing to export yet"):
        exported(session, "svg")


@pytest.mark.slow
def test_a_template_has_picture_equations_cost_and_timeline(session: Session) -> None:
    view = edited(session, do="template", name="multi-head")
    assert ElementTree.fromstring(view["svg"]).tag.endswith("svg")
    assert view["cost"]["parameters"] == 4 * 768 * 64 * 12
    timeline = view["timeline"]
    assert timeline["best"] == sum(step["operations"] for step in timeline["steps"])
    assert timeline["best"] == view["cost"]["operations"] < timeline["written"]
    assert timeline["steps"][2]["tensors"] == ["Xq", "WQ", "WK", "Xk"]
    pieces = [piece for line in view["program"] for piece in line]
    assert "".join(text for text, _, _ in pieces).startswith("A = softmax(D**-0.5 * einsum(")
    assert ["WQ", "tensor", "WQ"] in pieces
    assert ["h", "wire", "h"] in pieces
    assert view["einsum"]["text"] is None
    assert "softmax" in view["einsum"]["reason"]
    source = diagram_view.code(session, {})["text"]
    assert isinstance(source, str)
    assert "class MultiHead(nn.Module)" in source
    last: Any = diagram_view.step(session, {"number": 99})
    assert last["number"] == last["last"]
    first: Any = diagram_view.step(session, {"number": 1})
    assert "FLOP" in first["caption"]


def test_an_einsum_becomes_a_picture_and_a_typo_a_position(session: Session) -> None:
    view = edited(session, do="einsum", text="ij,jk->ik")
    assert view["einsum"]["text"] == "ij,jk->ik"
    wrong = edited(session, do="einsum", text="ij,j?->i")
    assert wrong["error_at"]["position"] == 4
    assert diagram_view.show(session, {})["einsum"] == view["einsum"]


def test_a_refused_edit_leaves_the_workspace_as_it_was(session: Session) -> None:
    before = edited(session, do="einsum", text="ij,jk->ik")
    for change, message in (
        ({"do": "nonsense"}, "whose 'do' is one of clear, template"),
        ({"do": "connect", "first": "i"}, "second is missing"),
        ({"do": "connect", "first": "i", "second": "z"}, "There is no wire 'z'"),
        ({"do": "size", "name": "i", "size": 0}, "wanted an integer in 1"),
        (
            {"do": "wrap", "members": ["A"], "function": "relu", "scale": "__import__"},
            "unknown symbol",
        ),
        ({"do": "json", "document": []}, "read from a JSON object"),
        ({"do": "pin", "positions": {"A": [1e9, 0]}}, "at most 1,000 units away"),
    ):
        with pytest.raises(RankscopeError, match=message):
            edited(session, **change)
    assert diagram_view.show(session, {})["tensors"] == before["tensors"]


def test_undo_goes_back_to_nothing_and_redo_forward(session: Session) -> None:
    edited(session, do="add-tensor", legs=["i", "j"])
    last = edited(session, do="add-tensor", legs=["j", "k"])
    for _ in range(2):
        view: Any = diagram_view.undo(session, {})
    assert view["tensors"] == []
    for _ in range(2):
        view = diagram_view.redo(session, {})
    assert view["tensors"] == last["tensors"]
    assert view["svg"] == last["svg"]


def test_repeats_are_drawn_as_one_and_counted_as_all(session: Session) -> None:
    whole = edited(session, do="template", name="tensor-train", settings={"order": "12"})
    shorter: dict[str, Any] = diagram_view.collapse(session, {"is_on": True})
    (run,) = shorter["runs"]
    assert run["names"] == [f"G{place}" for place in range(2, 12)]
    assert shorter["cost"] == whole["cost"]
    assert shorter["tensors"] == whole["tensors"]
    drawn = [str(view["svg"]).count('class="tensor ') for view in (whole, shorter)]
    assert drawn == [12, 3]
    ladder = edited(session, do="einsum", text="ab,bc,cd,ax,bx,cx->d")
    assert ladder["runs"] == []
    assert diagram_view.collapse(session, {"is_on": False})["is_collapsed"] is False


def test_two_diagrams_are_compared(session: Session) -> None:
    edited(session, do="einsum", text="ijk->ijk")
    kept: Any = diagram_view.compare(session, {"is_on": True})
    assert kept["compared"]["changed"] == []
    view = edited(session, do="factor", tensor="A", form="cp", rank=2)
    assert view["compared"]["cost"]["parameters"] == 16**3
    assert view["cost"]["parameters"] == 3 * 16 * 2
    assert view["compared"]["only_after"] == ["A1", "A2", "A3"]
    assert view["compared"]["only_before"] == ["A"]
    assert diagram_view.compare(session, {"is_on": False})["compared"] is None


def test_every_format_is_written_and_json_comes_back(session: Session) -> None:
    edited(session, do="template", name="tucker2-conv")
    starts = {"svg": b"<svg", "pdf": b"%PDF", "png": b"\x89PNG", "tikz": b"%", "python": b'"""'}
    for ending, start in starts.items():
        assert exported(session, ending).startswith(start), ending
    document = json.loads(exported(session, "json"))
    assert to_dict(from_dict(document)) == document
    edited(session, do="clear")
    assert edited(session, do="json", document=document)["can_undo"]
    assert json.loads(exported(session, "json")) == document
    total = to_dict(family("sum-of-pure-tensors", order=2, size=2))
    with pytest.raises(RequestError, match="holds a sum"):
        edited(session, do="json", document=total)


def test_the_source_of_an_export_runs(session: Session) -> None:
    edited(session, do="template", name="mlp")
    space: dict[str, Any] = {}
    exec(compile(exported(session, "python"), "mlp.py", "exec"), space)
    module = space["Mlp"]()
    assert module(torch.randn(784)).shape == (10,)


def test_tensors_that_are_there_keep_their_places() -> None:
    """In a large diagram; new ones stand apart from all others."""
    train, view = tensor_train(order=30, sizes=4, bond_dimensions=2), View(show_sizes=True)
    before = placed(train, view=view)
    larger = from_einsum("ab,bc->ac")
    joined = replace(
        train,
        nodes=(*train.nodes, replace(larger.nodes[0], name="new", indices=("i3", "i9"))),
        output=tuple(leg for leg in train.output if leg not in ("i3", "i9")),
    )
    after = keep_places(joined, before, view)
    assert {name: after.nodes[name] for name in before.nodes} == dict(before.nodes)
    x, y = after.nodes["new"]
    assert all((x - u) ** 2 + (y - v) ** 2 > 1 for u, v in before.nodes.values())
    assert to_svg(render(joined, after, view))
    alone = replace(train, nodes=(*train.nodes, replace(larger.nodes[0], name="new", indices=())))
    assert "new" in keep_places(alone, before, view).nodes
    with pytest.raises(LayoutError):
        render(joined, before, view)


def test_a_large_diagram_stays_where_it_is_when_a_size_changes(session: Session) -> None:
    edited(session, do="template", name="tensor-train", settings={"order": "30"})
    edited(session, do="add-tensor", legs=["i3", "i7"])
    first = edited(session, do="size", name="R_5", size=7)
    again = edited(session, do="size", name="R_5", size=9)

    def circles(view: Any) -> list[str]:
        return [line for line in view["svg"].splitlines() if line.startswith("<circle")]

    assert circles(first) == circles(again)
