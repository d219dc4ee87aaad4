import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.diagrams import Convolution, Diagram, Function, Index, IndexKind, Node, Region
from rankscope.diagrams.families import multi_head, multilayer_perceptron, with_causal_mask
from rankscope.drawing import View, outline
from rankscope.drawing.layout import (
    convolution_description,
    index_description,
    index_text,
    mark_description,
    node_text,
    plain_tex,
    region_description,
    tag_text,
)
from rankscope.drawing.layout.tensors import scale_tex


def normalized(*over: str, scale: str | None = None, label: str | None = None) -> Diagram:
    return Diagram(
        "picture",
        (Index("n", None, "N"), Index("f", None, "F"), Index("g", None, label="F'")),
        (Node("X", ("n", "f", "g")),),
        ("n", "f", "g"),
        regions=(Region("R", ("X",), Function("layer_norm"), over, scale, label=label),),
    )


def test_tags_say_what_the_function_runs_over_and_its_scale() -> None:
    diagram = multi_head()
    assert tag_text(diagram, diagram.regions[0]) == (
        r"$\mathrm{softmax}_{M}(\,\cdot\,/\sqrt{D}\,)$"
    )
    relu = multilayer_perceptron(widths=(3, 2, 1))
    assert tag_text(relu, relu.regions[0]) == r"$\mathrm{ReLU}$"
    layer_norm = normalized("f", "g")
    assert tag_text(layer_norm, layer_norm.regions[0]) == r"$\mathrm{LN}_{F,F'}$"


def test_a_causal_barrier_says_so() -> None:
    diagram = with_causal_mask(multi_head())
    assert tag_text(diagram, diagram.regions[0]).startswith(r"$\mathrm{causal}\,\mathrm{softmax}")


def test_a_label_replaces_the_tag() -> None:
    diagram = normalized("f", label=r"\Lambda")
    assert tag_text(diagram, diagram.regions[0]) == r"$\Lambda$"


@pytest.mark.parametrize(
    ("scale", "tex"),
    [
        ("N**-0.5", r"\cdot\,/\sqrt{N}"),
        ("N**-1", r"\cdot\,/N"),
        ("1/N", r"\cdot\,/N"),
        ("(N*F)**-0.5", r"\cdot\,/\sqrt{N\,F}"),
        ("2*N", r"2\,N\,\cdot"),
        ("(N+F)**2", r"(N+F)^{2}\,\cdot"),
        ("N**0.5", r"\sqrt{N}\,\cdot"),
        ("-N/F", r"-N/F\,\cdot"),
        ("g-1", r"F'-1\,\cdot"),
    ],
)
def test_scales_are_written_as_mathematics(scale: str, tex: str) -> None:
    assert scale_tex(normalized("f", scale=scale), scale) == tex


def test_sizes_are_written_on_wires_only_when_asked_for_and_known() -> None:
    index = Index("f", 768, "F")
    assert index_text(index, View()) == "$F$"
    assert index_text(index, View(show_sizes=True)) == r"$F\!=\!768$"
    assert index_text(Index("f", None, "F"), View(show_sizes=True)) == "$F$"


@pytest.mark.parametrize(
    ("name", "tex"),
    [("W", "W"), ("W1", "W_{1}"), ("r_12", "r_{12}"), ("4F", "4F"), ("in_1", r"\mathrm{in\_1}")],
)
def test_names_that_are_not_tex_become_tex(name: str, tex: str) -> None:
    assert plain_tex(name) == tex


@settings(deadline=None, max_examples=40)
@given(st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=1, max_size=8))
def test_any_printable_name_can_be_set(name: str) -> None:
    outline(f"${plain_tex(name)}$", 20.0)
    outline(node_text(Node(name, ())), 20.0)


def test_everything_has_words_for_screen_readers() -> None:
    convolution = Convolution("c", "h", "k", "y", stride=2, padding=(1, 0), dilation=3)
    assert convolution_description(convolution) == (
        "convolution c of h with k into y, stride 2, padding 1 and 0, dilation 3"
    )
    assert index_description(Index("f", 8, kind=IndexKind.RANK)) == "index f, rank, size 8"
    assert index_description(Index("f")) == "index f, generic, size not given"
    region = with_causal_mask(multi_head()).regions[0]
    assert region_description(region) == "softmax over m, causal, scaled by D**-0.5"
    assert mark_description(region, "m") == "softmax normalizes index m"
    assert mark_description(region, "n") == "index n leaves softmax"
