from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankscope.diagrams import Convolution, Diagram, Function, Index, Node, Region, check_size
from rankscope.errors import DiagramError, SizeError

PRODUCT = Diagram(
    "product",
    (Index("i", symbol="I"), Index("j", symbol="J"), Index("k", symbol="K")),
    (Node("A", ("i", "j")), Node("B", ("j", "k"))),
    output=("i", "k"),
)


def convolution(**changes: object) -> Diagram:
    operator = replace(Convolution("C", "h", "u", "y"), **changes)  # type: ignore[arg-type]
    return Diagram(
        "convolution",
        (Index("h", 8), Index("u", 3), Index("y")),
        (Node("X", ("h",)), Node("K", ("u",))),
        output=("y",),
        convolutions=(operator,),
    )


def attention(over: tuple[str, ...] = ("m",), scale: str | None = None) -> Diagram:
    return Diagram(
        "attention",
        (Index("n"), Index("m"), Index("d", symbol="D"), Index("c")),
        (Node("Q", ("n", "d")), Node("K", ("m", "d")), Node("V", ("m", "c"))),
        output=("n", "c"),
        regions=(Region("A", ("Q", "K"), Function("softmax"), over, scale),),
    )


def test_an_edit_returns_a_new_diagram_and_leaves_the_old_one() -> None:
    sized = PRODUCT.with_sizes(I=2, J=3)
    assert sized.sizes == {"i": 2, "j": 3, "k": None}
    assert PRODUCT.sizes == {"i": None, "j": None, "k": None}
    assert hash(sized) != hash(PRODUCT)


def test_a_size_may_be_given_by_index_name_too() -> None:
    assert PRODUCT.with_sizes(j=5).symbols == {"I": None, "J": 5, "K": None}


@given(size=st.one_of(st.integers(max_value=0), st.booleans(), st.floats(), st.text()))
def test_a_size_that_is_not_a_positive_integer_is_refused(size: object) -> None:
    with pytest.raises(SizeError, match="size of index 'i' must be a positive integer, got"):
        check_size("index 'i'", size)


def test_the_size_of_an_index_is_checked() -> None:
    with pytest.raises(SizeError, match="size of index 'i' must be a positive integer, got 0"):
        Diagram("d", (Index("i", 0),), (Node("A", ("i",)),), ("i",))


def test_a_size_for_an_unknown_symbol_names_the_known_ones() -> None:
    with pytest.raises(SizeError, match="no index or symbol 'Z'; it has: I, J, K, i, j, k"):
        PRODUCT.with_sizes(Z=3)
    with pytest.raises(SizeError, match="size of 'I' must be a positive integer, got -1"):
        PRODUCT.with_sizes(I=-1)


def test_one_symbol_with_two_sizes_is_refused_with_both() -> None:
    with pytest.raises(SizeError, match="'F' has two sizes: 3 on index 'f' and 4 on index 'g'"):
        Diagram("d", (Index("f", 3, "F"), Index("g", 4, "F")), (Node("A", ("f", "g")),), ("f", "g"))


def test_an_unknown_index_is_refused_by_name() -> None:
    with pytest.raises(DiagramError, match="'A' has the unknown index 'z'; known are: i"):
        Diagram("d", (Index("i"),), (Node("A", ("i", "z")),), ("i",))


def test_an_open_leg_on_no_node_is_refused() -> None:
    with pytest.raises(DiagramError, match="Open leg 'z' of diagram 'd' is on no node"):
        Diagram("d", (Index("i"), Index("z")), (Node("A", ("i",)),), ("i", "z"))


@pytest.mark.parametrize(
    ("indices", "nodes", "output", "message"),
    [
        (("i", "i"), ("A",), ("i",), "2 times the index 'i'"),
        (("i",), ("A", "A"), ("i",), "2 times the node, convolution or region 'A'"),
        (("i",), ("A",), ("i", "i"), "2 times the open leg 'i'"),
    ],
)
def test_names_must_differ(
    indices: tuple[str, ...], nodes: tuple[str, ...], output: tuple[str, ...], message: str
) -> None:
    with pytest.raises(DiagramError, match=message):
        Diagram(
            "d",
            tuple(Index(name) for name in indices),
            tuple(Node(name, ("i",)) for name in nodes),
            output,
        )


def test_an_isometry_narrows_towards_one_of_its_own_indices() -> None:
    with pytest.raises(DiagramError, match="'Q' names 'r' as its narrow side"):
        Diagram("d", (Index("i"),), (Node("Q", ("i",), narrow_side="r"),), ("i",))


def test_a_softmax_over_a_leg_that_stays_inside_is_refused() -> None:
    with pytest.raises(DiagramError, match=r"over index 'd', which does not leave .*: n, m\."):
        attention(over=("d",))


def test_a_softmax_must_say_over_which_leg() -> None:
    with pytest.raises(DiagramError, match="applies softmax, which needs `over`"):
        attention(over=())


def test_an_entrywise_function_has_nothing_to_normalize() -> None:
    diagram = attention()
    region = replace(diagram.regions[0], function=Function("relu"))
    with pytest.raises(DiagramError, match=r"`over` must be empty, got \('m',\)"):
        replace(diagram, regions=(region,))


def test_a_scale_with_an_unknown_symbol_is_refused() -> None:
    assert attention(scale="D**-0.5").regions[0].scale == "D**-0.5"
    with pytest.raises(DiagramError, match="uses the unknown symbol 'E'"):
        attention(scale="E**-0.5")


def test_regions_form_a_tree() -> None:
    diagram = attention()
    again = Region("B", ("Q",), Function("relu"))
    with pytest.raises(DiagramError, match="'Q' is in two regions, 'A' and 'B'"):
        replace(diagram, regions=(*diagram.regions, again))
    with pytest.raises(DiagramError, match="contains itself"):
        replace(
            diagram,
            regions=(
                Region("A", ("B",), Function("relu")),
                Region("B", ("A",), Function("relu")),
            ),
        )
    with pytest.raises(DiagramError, match="unknown member 'Z'"):
        replace(diagram, regions=(Region("A", ("Z",), Function("relu")),))
    with pytest.raises(DiagramError, match="'A' is empty"):
        replace(diagram, regions=(Region("A", (), Function("relu")),))


@given(
    length=st.integers(1, 12),
    kernel=st.integers(1, 5),
    stride=st.integers(1, 3),
    dilation=st.integers(1, 3),
    padding=st.tuples(st.integers(0, 3), st.integers(0, 3)),
)
def test_the_output_of_a_convolution_counts_the_places_a_kernel_fits(
    length: int, kernel: int, stride: int, dilation: int, padding: tuple[int, int]
) -> None:
    operator = Convolution("C", "h", "u", "y", stride, padding, dilation)
    padded, reach = length + sum(padding), dilation * (kernel - 1)
    places = [start for start in range(0, padded, stride) if start + reach < padded]
    assert max(operator.output_size(length, kernel), 0) == len(places)


def test_a_convolution_with_wrong_sizes_says_what_they_should_be() -> None:
    diagram = convolution(stride=2, padding=(1, 1))
    with pytest.raises(SizeError, match="give an output of 4, but index 'y' has size 5"):
        diagram.with_sizes(y=5)
    with pytest.raises(SizeError, match=r"kernel of 3 \(dilation 9\) does not fit an input of 8"):
        convolution(dilation=9)


def test_the_input_and_kernel_of_a_convolution_belong_to_one_node_each() -> None:
    diagram = convolution()
    with pytest.raises(DiagramError, match=r"leg 'u' must be held by exactly one other node"):
        replace(diagram, nodes=(*diagram.nodes, Node("L", ("u",))))
    with pytest.raises(DiagramError, match=r"leg 'h' must be held by .* and open"):
        replace(diagram, output=("y", "h"))
    with pytest.raises(DiagramError, match="three different legs"):
        convolution(kernel="h")
    with pytest.raises(DiagramError, match=r"padding_mode must be one of .*, got 'wrap'"):
        convolution(padding_mode="wrap")
    with pytest.raises(SizeError, match="stride of convolution 'C' must be a positive"):
        convolution(stride=0)
    with pytest.raises(SizeError, match="dilation of convolution 'C' must be a positive"):
        convolution(dilation=0)
