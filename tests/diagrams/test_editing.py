"""Edits of a diagram: what each makes, what it refuses, and undo."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import rankscope
from rankscope.diagrams import Diagram, IndexKind, Role, plan_contraction, to_einsum, to_module
from rankscope.diagrams.editing import (
    EMPTY,
    AddLeg,
    AddTensor,
    Clear,
    Connect,
    Contract,
    Detach,
    Document,
    Edit,
    Factor,
    Form,
    History,
    Pin,
    Release,
    Remove,
    Rename,
    SetBarrier,
    SetKind,
    SetOpen,
    SetRole,
    SetSize,
    UseDiagram,
    UseEinsum,
    UseTemplate,
    Wrap,
    usual_settings,
)
from rankscope.diagrams.families import FAMILIES
from rankscope.errors import BudgetError, DiagramError, EinsumError, RankscopeError, SizeError


def edited(*edits: Edit, start: Document = EMPTY) -> Document:
    history = History(start)
    for edit in edits:
        history = history.applied(edit)
    return history.present


def equation(document: Document) -> str:
    return to_einsum(document.diagram)


PRODUCT = edited(UseEinsum("ij,jk->ik"))


def test_multi_head_attention_can_be_built_from_nothing() -> None:
    """The family, tensor by tensor: the same value as the template's."""
    document = edited(
        AddTensor(("n", "f"), "Xq", Role.DATA),
        AddTensor(("f", "d", "h"), "WQ"),
        AddTensor(("g", "d", "h"), "WK"),
        AddTensor(("m", "g"), "Xk", Role.DATA),
        SetOpen("h", is_open=True),
        Wrap(("Xq", "WQ", "WK", "Xk"), "softmax", over=("m",), scale="d**-0.5"),
        AddTensor(("e", "c", "h"), "WV"),
        AddTensor(("m", "e"), "Xv", Role.DATA),
        AddTensor(("o", "c", "h"), "WO"),
    )
    for name in "fgeo":
        document = edited(SetSize(name, 8), start=document)
    for name, size in {"n": 5, "m": 5, "d": 4, "c": 4, "h": 2}.items():
        document = edited(SetSize(name, size), start=document)
    module = to_module(document.diagram)
    template = rankscope.diagrams.family("multi-head", N=5, M=5, F=8, D=4, H=2)
    assert isinstance(template, Diagram)
    other = to_module(template)
    weights = dict(module.named_parameters())
    for name, parameter in other.named_parameters():
        parameter.data = weights[name].data
    inputs = torch.randn(5, 8)
    torch.testing.assert_close(
        module(Xq=inputs, Xk=inputs, Xv=inputs), other(query=inputs, memory=inputs)
    )


def test_the_template_equals_the_layer_of_pytorch() -> None:
    sizes = {"N": "5", "M": "5", "F": "8", "D": "4", "H": "2"}
    module = to_module(edited(UseTemplate("multi-head", sizes)).diagram)
    layer = nn.MultiheadAttention(8, 2, bias=False, batch_first=True)
    weights = dict(module.named_parameters())
    parts = [weights[name].permute(2, 1, 0).reshape(8, 8) for name in ("WQ", "WK", "WV")]
    layer.in_proj_weight.data = torch.cat(parts)
    layer.out_proj.weight.data = weights["WO"].permute(0, 2, 1).reshape(8, 8)
    inputs = torch.randn(5, 8)
    expected, _ = layer(inputs[None], inputs[None], inputs[None])
    torch.testing.assert_close(module(query=inputs, memory=inputs), expected[0])


@pytest.mark.parametrize("name", sorted(FAMILIES.keys() - {"sum-of-pure-tensors"}))
def test_every_template_has_all_sizes(name: str) -> None:
    document = edited(UseTemplate(name))
    assert plan_contraction(document.diagram).flops > 0
    assert document.template is not None
    assert document.template.settings == usual_settings(name)


def test_settings_of_a_template_are_set_by_size_and_pins_stay() -> None:
    document = edited(UseTemplate("tensor-train"), Pin({"G1": (1.0, 2.0)}), SetSize("order", 6))
    assert len(document.diagram.nodes) == 6
    assert document.positions == {"G1": (1.0, 2.0)}
    assert edited(SetKind("i1", IndexKind.BATCH), start=document).template is None
    assert edited(Remove(("G1",)), start=document).positions == {}
    with pytest.raises(DiagramError, match="no tensor 'G9' to pin"):
        edited(Pin({"G9": (0, 0)}), start=document)


def test_an_equation_keeps_names_roles_and_sizes() -> None:
    document = edited(
        SetSize("j", 3), SetRole("A", Role.DATA), UseEinsum("ij,jm->im"), start=PRODUCT
    )
    assert equation(document) == "ij,jm->im"
    assert document.diagram.nodes[0].role is Role.DATA
    assert document.diagram.sizes == {"i": 16, "j": 3, "m": 16}


@pytest.mark.parametrize(
    ("text", "position"),
    [("ij,j1->i", 4), ("ij,jk->iz", 8), ("ij->ii", 5), ("i.j->i", 1), ("...i->i", 0)],
)
def test_a_typo_in_an_equation_has_a_position(text: str, position: int) -> None:
    with pytest.raises(EinsumError) as refused:
        edited(UseEinsum(text))
    assert refused.value.position == position


def test_wires_are_connected_taken_apart_and_kept_open() -> None:
    three = edited(AddTensor(("j", "l"), "C"), start=PRODUCT)
    assert equation(three) == "ij,jk,jl->ikl"  # a hyperedge, summed
    batch = edited(SetOpen("j", is_open=True), start=three)
    assert equation(batch) == "ij,jk,jl->iklj"
    assert edited(SetOpen("j", is_open=True), start=batch) == batch
    loose = edited(Detach("C", "j"), start=three)
    assert equation(loose) == "ij,jk,ml->iklm"
    back = edited(Connect("j", "m"), start=loose)
    assert equation(back) == "ij,jk,jl->ikl"
    trace = edited(AddLeg("A"), Connect("i", "l"), start=PRODUCT)
    assert equation(trace) == "iji,jk->k"
    with pytest.raises(SizeError, match="Wire 'i' has size 16 and 'k' has size 5"):
        edited(SetSize("k", 5), Connect("i", "k"), start=PRODUCT)
    with pytest.raises(DiagramError, match="'j' is one wire already"):
        edited(Connect("j", "j"), start=PRODUCT)
    with pytest.raises(DiagramError, match="nothing to take off"):
        edited(Detach("A", "i"), start=PRODUCT)
    with pytest.raises(DiagramError, match="'A' has no leg 'k'"):
        edited(Detach("A", "k"), start=PRODUCT)


def test_what_lost_an_end_comes_open_and_barriers_without_legs_go() -> None:
    assert equation(edited(Remove(("B",)), start=PRODUCT)) == "ij->ij"
    layer = edited(Wrap(("A",), "softmax", over=("j",)), start=PRODUCT)
    assert layer.diagram.regions[0].over == ("j",)
    assert edited(Remove(("R1",)), start=layer).diagram == PRODUCT.diagram
    assert edited(Remove(("A",)), start=layer).diagram.regions == ()
    both = edited(Wrap(("A", "B"), "softmax"), start=PRODUCT)
    assert both.diagram.regions[0].over == ("k",)  # the last leg that leaves
    assert edited(Remove(("B",)), start=both).diagram.regions == ()
    nested = edited(Wrap(("R1",), "relu"), start=layer)
    inner = edited(Remove(("R2",)), start=nested)
    assert inner.diagram.regions == layer.diagram.regions


def test_barriers_change_and_refuse_by_name() -> None:
    layer = edited(Wrap(("A",), "relu"), start=PRODUCT)
    changed = edited(SetBarrier("R1", "softmax", scale="j**-0.5"), start=layer)
    assert changed.diagram.regions[0].over == ("j",)
    assert (
        edited(SetBarrier("R1", "relu", over=("j",)), start=changed).diagram.regions[0].over == ()
    )
    with pytest.raises(DiagramError, match="must be in one region; these are in R1, the outside"):
        edited(Wrap(("A", "B"), "relu"), start=layer)
    with pytest.raises(DiagramError, match="select tensors first"):
        edited(Wrap((), "relu"), start=layer)
    with pytest.raises(DiagramError, match="There is no barrier 'R7'"):
        edited(SetBarrier("R7", "relu"), start=layer)
    with pytest.raises(DiagramError, match="'nonsense' is unknown"):
        edited(Wrap(("A",), "nonsense"), start=PRODUCT)


def test_names_change_everywhere_and_differ() -> None:
    layer = edited(Wrap(("A",), "softmax", over=("j",)), Pin({"A": (1, 2)}), start=PRODUCT)
    renamed = edited(Rename("A", "Weights"), Rename("j", "inner"), Rename("R1", "S"), start=layer)
    assert renamed.diagram.regions[0].members == ("Weights",)
    assert renamed.diagram.regions[0].over == ("inner",)
    assert renamed.positions == {"Weights": (1.0, 2.0)}
    for name, to, message in (
        ("i", "k", "connect the two"),
        ("A", "B", "names must differ"),
        ("A", "a b", "letters, digits and _ only"),
        ("Q", "Z", "There is no tensor or barrier 'Q'; there are: A, B"),
    ):
        with pytest.raises(DiagramError, match=message):
            edited(Rename(name, to), start=PRODUCT)


@pytest.mark.parametrize(
    ("form", "parts", "parameters"),
    [
        (Form.SVD, ["ijr", "rk"], 2 * 3 * 2 + 2 * 4),
        (Form.CP, ["ir", "jr", "kr"], 2 * (2 + 3 + 4)),
        (Form.TUCKER, ["ir", "js", "kt", "rst"], 2 * (2 + 3 + 4) + 8),
        (Form.TRAIN, ["ir", "rjs", "sk"], 2 * 2 + 2 * 3 * 2 + 2 * 4),
    ],
)
def test_a_tensor_is_written_in_every_form(form: Form, parts: list[str], parameters: int) -> None:
    start = edited(UseEinsum("ijk->ijk"))
    for name, size in {"i": 2, "j": 3, "k": 4}.items():
        start = edited(SetSize(name, size), start=start)
    document = edited(Factor("A", form, 2), start=start)
    letters = dict(zip(("r1", "r2", "r3"), "rst", strict=True))
    held = ["".join(letters.get(i, i) for i in node.indices) for node in document.diagram.nodes]
    assert held == parts
    assert rankscope.cost(document.diagram).parameters == parameters
    assert document.diagram.output == ("i", "j", "k")
    inside = edited(Wrap(("A",), "relu"), Factor("A", form, 2), start=start)
    assert len(inside.diagram.regions[0].members) == len(parts)


def test_a_tensor_that_cannot_be_factored_is_named() -> None:
    with pytest.raises(DiagramError, match="'A' has the legs i; only one with at least two"):
        edited(UseEinsum("i->i"), Factor("A", Form.CP, 2))
    with pytest.raises(DiagramError, match="The legs i, j must be some of i, j, not all"):
        edited(UseEinsum("ij->ij"), Factor("A", Form.SVD, 2, left=("i", "j")))
    with pytest.raises(SizeError, match="positive integer, got 0"):
        edited(UseEinsum("ij->ij"), Factor("A", Form.SVD, 0))


def test_contractions_by_hand_are_added_up_beside_the_best_order() -> None:
    start = edited(UseEinsum("ij,jk,kl->il"), SetSize("l", 1))
    best = plan_contraction(start.diagram).flops
    worse = edited(Contract(("A", "B")), start=start)
    assert worse.best_before == best
    assert worse.spent == 2 * 16**3
    done = edited(Contract(("P1", "C")), start=worse)
    assert done.spent == 2 * 16**3 + 2 * 16**2
    assert done.spent > best
    well = edited(Contract(("B", "C")), Contract(("A", "P1")), start=start)
    assert well.spent == best


def test_undo_goes_back_to_nothing_and_redo_forward() -> None:
    history = History()
    edits = [UseTemplate("cp"), Pin({"A1": (0, 0)}), Release(), Clear(), UseEinsum("ij->i")]
    states = [history.present]
    for edit in edits:
        history = history.applied(edit)
        states.append(history.present)
    for state in reversed(states[:-1]):
        history = history.undone()
        assert history.present == state
    assert history.undone() is history
    for state in states[1:]:
        history = history.redone()
        assert history.present == state
    assert history.redone() is history


def test_a_slider_is_one_step_and_no_change_is_none() -> None:
    history = History().applied(UseTemplate("cp"))
    for number, rank in enumerate(range(5, 20)):
        history = history.applied(SetSize("rank", rank), continues=number > 0)
    assert len(history.past) == 2
    assert history.applied(SetSize("rank", 19)) is history


def test_a_refused_edit_changes_nothing() -> None:
    history = History(PRODUCT)
    with pytest.raises(RankscopeError):
        history.applied(Remove(("nobody",)))
    with pytest.raises(BudgetError, match="500"):
        history.applied(UseTemplate("pure-tensor", {"order": "900"}))
    with pytest.raises(DiagramError, match="is a sum of several diagrams"):
        history.applied(UseTemplate("sum-of-pure-tensors"))
    assert history == History(PRODUCT)


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_random_edits_are_applied_or_refused_and_undone(data: st.DataObject) -> None:
    history = History(
        edited(
            UseTemplate(data.draw(st.sampled_from(["multi-head", "tucker2-conv", "tensor-ring"])))
        )
    )
    start = history.present
    count = 0
    for _ in range(8):
        diagram = history.present.diagram
        tensors = [node.name for node in diagram.nodes] or ["none"]
        wires = [index.name for index in diagram.indices] or ["none"]
        regions = [region.name for region in diagram.regions] or ["none"]
        tensor, wire = st.sampled_from(tensors), st.sampled_from(wires)
        edit = data.draw(
            st.one_of(
                st.builds(AddLeg, tensor),
                st.builds(Connect, wire, wire),
                st.builds(Detach, tensor, wire),
                st.builds(SetOpen, wire, st.booleans()),
                st.builds(lambda name: Remove((name,)), st.sampled_from(tensors + regions)),
                st.builds(lambda a, b: Wrap((a, b) if a != b else (a,), "softmax"), tensor, tensor),
                st.builds(lambda a, b: Contract((a, b) if a != b else (a,)), tensor, tensor),
                st.builds(Factor, tensor, st.sampled_from(Form), st.just(3)),
            )
        )
        try:
            changed = history.applied(edit)
        except RankscopeError:
            continue
        count += changed is not history
        history = changed
        held = set(history.present.diagram.structure.owners)
        assert {index.name for index in history.present.diagram.indices} == held
    for _ in range(count):
        history = history.undone()
    assert history.present == start


def test_a_diagram_from_elsewhere_is_taken_as_it_is() -> None:
    diagram = replace(PRODUCT.diagram, name="mine")
    assert edited(UseDiagram(diagram)) == Document(diagram)
