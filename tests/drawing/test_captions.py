import pytest

from rankscope.diagrams import (
    Contraction,
    Convolution,
    Diagram,
    Function,
    Index,
    Node,
    Region,
    Role,
    plan_contraction,
)
from rankscope.drawing.frames import (
    contraction_tex,
    move_cost,
    product_label,
    region_label,
    region_tex,
    short_number,
    sizes_text,
    values,
)


def network(words: str, output: str, *, role: Role = Role.PARAMETER) -> Diagram:
    nodes = tuple(
        Node(chr(65 + place), tuple(word), role) for place, word in enumerate(words.split(","))
    )
    letters = dict.fromkeys(words.replace(",", ""))
    return Diagram("test", tuple(Index(name, 2) for name in letters), nodes, tuple(output))


def only_move(diagram: Diagram) -> str:
    (move,) = plan_contraction(diagram).contractions
    return contraction_tex(diagram, move, move.operands)


@pytest.mark.parametrize(
    ("words", "output", "formula"),
    [
        ("ij,jk", "ik", r"\sum_{j}\,\mathbf{A}\,\mathbf{B}"),
        ("ijk,jk", "i", r"\sum_{j,k}\,\mathbf{A}\,\mathbf{B}"),
        ("ij,ij", "ij", r"\mathbf{A}\odot\mathbf{B}"),
        ("i,j", "ij", r"\mathbf{A}\otimes\mathbf{B}"),
        ("ij", "i", r"\sum_{j}\,\mathbf{A}"),
        ("ii", "", r"\mathrm{tr}_{i}(\mathbf{A})"),
        ("ii", "i", r"\mathrm{diag}_{i}(\mathbf{A})"),
        ("iijjk", "i", r"\sum_{k}\,\mathrm{tr}_{j}(\mathrm{diag}_{i}(\mathbf{A}))"),
    ],
)
def test_a_formula_says_what_is_summed_and_how_factors_meet(
    words: str, output: str, formula: str
) -> None:
    assert only_move(network(words, output)) == formula


def test_weights_stand_last_and_equal_symbols_once() -> None:
    layer = Diagram(
        "layer",
        (Index("i", 2, "F"), Index("j", 2, "F"), Index("k", 2)),
        (Node("W", ("i", "j", "k")), Node("X", ("i", "j"), Role.DATA)),
        output=("k",),
    )
    assert only_move(layer) == r"\sum_{F}\,\mathbf{X}\,\mathbf{W}"


def test_a_convolution_has_a_star_and_its_own_legs_are_not_summed() -> None:
    layer = Diagram(
        "layer",
        (Index("h", 5), Index("u", 2), Index("y", 4), Index("s", 3)),
        (Node("X", ("s", "h"), Role.DATA), Node("G", ("s", "u"))),
        output=("y",),
        convolutions=(Convolution("c", "h", "u", "y"),),
    )
    assert only_move(layer) == r"\sum_{s}\,\mathbf{X}\ast\mathbf{G}"


def test_a_look_up_is_written_as_a_product_and_costs_no_operations() -> None:
    table = Diagram(
        "embedding",
        (Index("n", 3), Index("v", 7), Index("f", 4)),
        (Node("T", ("n", "v"), Role.DATA, is_one_hot=True), Node("E", ("v", "f"))),
        output=("n", "f"),
    )
    (move,) = plan_contraction(table).contractions
    assert contraction_tex(table, move, move.operands) == r"\sum_{v}\,\mathbf{T}\,\mathbf{E}"
    assert move_cost(move) == "look-up,  12 values"


def attention() -> Diagram:
    weight = r"\mathcal{W}^{\,Q}"
    return Diagram(
        "attention",
        (Index("n", 2, "N"), Index("f", 3, "F"), Index("d", 4, "D"), Index("m", 5, "M")),
        (
            Node("X", ("n", "f"), Role.DATA),
            Node("WQ", ("f", "d"), label=weight),
            Node("U", ("f", "d"), label=r"\mathbf{U}^{S}"),
            Node("K", ("m", "d"), Role.RESULT),
        ),
        output=("n", "m"),
        regions=(Region("A", ("X", "WQ", "U", "K"), Function("softmax"), ("m",), scale="D**-0.5"),),
    )


def label(names: tuple[str, ...], *, function: str | None = None, is_last: bool = False) -> str:
    return product_label(attention(), names, function=function, is_last=is_last) or ""


def test_results_are_named_after_what_they_are() -> None:
    assert label(("WQ", "X")) == r"\mathbf{Q}"
    assert label(("X", "U")) == ""
    assert label(("WQ", "K")) == ""
    assert label(("X", "K")) == ""
    assert label(("X", "K"), function="softmax") == r"\mathbf{S}"
    assert label(("X", "K"), function="relu") == ""
    assert label(("X", "K"), is_last=True) == r"\mathbf{Y}"


def test_two_letters_make_a_product_of_two_letters() -> None:
    product = network("ij,jk,kl", "il")
    assert product_label(product, ("B", "A"), function=None, is_last=True) == r"\mathbf{AB}"
    assert product_label(product, ("A", "B", "C"), function=None, is_last=False) is None


def test_a_barrier_with_a_short_name_gives_it_to_its_value() -> None:
    def named(name: str) -> str | None:
        return region_label(Region(name, ("X",), Function("relu")))

    assert named("A") == r"\mathbf{A}"
    assert named("H12") == r"\mathbf{H}_{12}"
    assert named("relu") is None


def test_a_barrier_is_written_as_a_function_of_its_argument() -> None:
    diagram = attention()
    assert region_tex(diagram, diagram.regions[0], r"\mathbf{S}") == (
        r"\mathrm{softmax}_{M}(\,\mathbf{S}\,/\sqrt{D}\,)"
    )
    plain = Region("R", ("X",), Function("relu"))
    assert region_tex(diagram, plain, "x") == r"\mathrm{ReLU}(x)"
    tagged = Region("R", ("X",), Function("relu"), scale="D", label=r"f\cdot")
    assert region_tex(diagram, tagged, "x") == r"f\cdot(x)"


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 FLOP"),
        (999, "999 FLOP"),
        (1000, "1.00 kFLOP"),
        (9_994, "9.99 kFLOP"),
        (9_996, "10.0 kFLOP"),
        (99_960, "100 kFLOP"),
        (999_400, "999 kFLOP"),
        (999_600, "1.00 MFLOP"),
        (3 * 10**18, "3000 PFLOP"),
    ],
)
def test_numbers_have_three_digits(count: int, text: str) -> None:
    assert short_number(count, unit="FLOP") == text


def test_one_value_is_singular() -> None:
    assert values(1) == "1 value"
    assert values(2) == "2 values"
    assert values(2048) == "2.05 k values"


def test_costs_are_operations_and_entries() -> None:
    move = Contraction((0, 1), ("A", "B"), ((), ()), "result#0", (), (), 2_400, 1)
    assert move_cost(move) == "2.40 kFLOP,  1 value"


def test_sizes_are_listed_together_when_equal() -> None:
    assert sizes_text(attention()) == r"$N=2,\ \ F=3,\ \ D=4,\ \ M=5$"
    equal = Diagram("e", (Index("i", 3), Index("j", 3)), (Node("A", ("i", "j")),), ("i", "j"))
    assert sizes_text(equal) == "$i=j=3$"
    assert sizes_text(Diagram("e", (Index("i"),), (Node("A", ("i",)),), ("i",))) == ""


def test_many_sizes_are_summed_up() -> None:
    letters = "abcdefghi"
    indices = tuple(Index(name, 2 + place) for place, name in enumerate(letters))
    many = Diagram("many", indices, (Node("A", tuple(letters)),), tuple(letters))
    assert sizes_text(many) == "9 indices of sizes 2 to 10"
