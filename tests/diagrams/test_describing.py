from rankscope.diagrams import (
    Convolution,
    Diagram,
    Function,
    Index,
    Network,
    Node,
    Region,
    Role,
    Step,
    Sum,
    Term,
    WireKind,
    describe,
    wire_kind,
)


def diagram(words: str, output: str) -> Diagram:
    """Nodes A, B, … from words of index letters."""
    nodes = tuple(Node(chr(65 + place), tuple(word)) for place, word in enumerate(words.split(",")))
    letters = dict.fromkeys(words.replace(",", ""))
    return Diagram("test", tuple(map(Index, letters)), nodes, tuple(output))


def test_every_kind_of_wire_is_named() -> None:
    def kind(words: str, output: str) -> WireKind | None:
        return wire_kind(diagram(words, output), "i")

    assert kind("i", "i") is WireKind.OPEN
    assert kind("i", "") is WireKind.SUMMED
    assert kind("ii", "") is WireKind.TRACE
    assert kind("ii", "i") is WireKind.DIAGONAL
    assert kind("i,i", "") is WireKind.CONTRACTION
    assert kind("i,i", "i") is WireKind.BATCH_PRODUCT
    assert kind("i,i,i", "i") is WireKind.BATCH_PRODUCT
    assert kind("i,i,i", "") is WireKind.HYPER_CONTRACTION
    assert kind("ii,i", "") is WireKind.HYPER_CONTRACTION


def test_an_index_on_nothing_has_no_kind() -> None:
    lonely = Diagram("lonely", (Index("i"), Index("z")), (Node("A", ("i",)),), ("i",))
    assert wire_kind(lonely, "z") is None
    assert "Index z" not in describe(lonely)


def attention() -> Diagram:
    return Diagram(
        "attention",
        (
            Index("n", 5, "N"),
            Index("m", 6, "M"),
            Index("d", None, "D"),
            Index("h", 2),
            Index("c"),
        ),
        (
            Node("Q", ("n", "d", "h"), Role.DATA),
            Node("K", ("m", "d", "h"), Role.DATA, array="memory"),
            Node("V", ("m", "c", "h"), rows=(4, 8)),
        ),
        output=("n", "c"),
        regions=(
            Region(
                "A", ("Q", "K"), Function("softmax"), ("m",), scale="D**-0.5", causal=("n", "m")
            ),
        ),
        title="Masked attention",
    )


def test_a_diagram_is_described_in_full() -> None:
    assert describe(attention()) == (
        "Tensor diagram Masked attention: 3 tensors. "
        "Data: Q[n, d, h], K[m, d, h] (array memory). "
        "Parameter: V[m, c, h] (rows 4 to 7). "
        "Index n (size N = 5): open leg of Q, through barrier A. "
        "Index m (size M = 6): contraction of K and V, through barrier A. "
        "Index d (size D): contraction of Q and K. "
        "Index h (size 2): hyper-contraction of Q, K and V, through barrier A. "
        "Index c: open leg of V. "
        "Barrier A: softmax over m is applied to the product of Q and K times D**-0.5, with "
        "entries where m comes after n masked, before anything outside is contracted. "
        "Open legs: n, c."
    )


def test_repeated_axes_isometries_constants_and_one_hot_tensors_are_told() -> None:
    text = describe(
        Diagram(
            "odd",
            (Index("i"), Index("j"), Index("k")),
            (
                Node("A", ("i", "i", "j"), Role.CORE),
                Node("B", ("i", "k"), Role.CONSTANT, fill=0.5),
                Node("C", ("j", "k"), narrow_side="j"),
                Node("T", ("j",), Role.DATA, is_one_hot=True),
                Node("s", (), Role.RESULT),
            ),
            output=(),
        )
    )
    assert "Core: A[i, i, j]." in text
    assert "Constant: B[i, k] (every entry 0.5)." in text
    assert "C[j, k] (isometry, narrow side j)" in text
    assert "T[j] (one-hot)" in text
    assert "Result: s." in text
    assert "Index i: hyper-contraction of A (2 axes) and B." in text
    assert text.endswith("Open legs: none, the value is a number.")


def test_a_convolution_tells_what_slides_along_what() -> None:
    layer = Diagram(
        "layer",
        (Index("h", 8, "H"), Index("u", 3), Index("y", 5)),
        (Node("X", ("h",), Role.DATA), Node("G", ("u",))),
        output=("y",),
        convolutions=(Convolution("c", "h", "u", "y", 2, (1, 2), 1, "circular"),),
    )
    assert (
        "Convolution c slides index u (size 3) of G along index h (size H = 8) of X into index "
        "y (size 5), stride 2, padding 1 before and 2 after (circular)."
    ) in describe(layer)
    assert "Index h" not in describe(layer)
    assert "Index y (size 5): open leg of c." in describe(layer)


def test_dilation_and_options_of_functions_are_told() -> None:
    layer = Diagram(
        "layer",
        (Index("h", 9), Index("u", 2), Index("y", 6)),
        (Node("X", ("h",), Role.DATA), Node("G", ("u",))),
        output=("y",),
        convolutions=(Convolution("c", "h", "u", "y", dilation=3),),
        regions=(Region("R", ("X", "G", "c"), Function("elu", (("alpha", 2.0),))),),
    )
    assert "stride 1, dilation 3." in describe(layer)
    assert "Barrier R: elu (alpha 2.0) is applied to the product of X, G and c before" in describe(
        layer
    )


def test_nested_barriers_are_told_from_the_inside_out() -> None:
    nested = Diagram(
        "nested",
        (Index("i"),),
        (Node("X", ("i",)),),
        output=("i",),
        regions=(
            Region("S", ("R",), Function("tanh")),
            Region("R", ("X",), Function("relu")),
        ),
    )
    text = describe(nested)
    assert text.index("Barrier R: relu") < text.index("Barrier S: tanh")
    assert "open leg of X, through barriers S and R" in text


def test_a_sum_tells_its_coefficients() -> None:
    total = Sum("total", (Term(diagram("i", "i")), Term(diagram("i,i", "i"), -0.5)))
    assert describe(total).startswith(
        "Sum total of 2 terms. Term 1: Tensor diagram test: 1 tensor."
    )
    assert "Term 2, times -0.5: Tensor diagram test: 2 tensors." in describe(total)


def layer_step(number: int) -> Step:
    nodes = (
        Node("X", ("i",), Role.DATA, array=f"x{number}"),
        Node("W", ("i", "j"), array=f"w{number}"),
    )
    return Step(f"x{number + 1}", Diagram("layer", (Index("i", 2), Index("j", 2)), nodes, ("j",)))


def test_a_network_is_told_step_by_step_with_repeats_once() -> None:
    head = Step("head", Sum("sum", (Term(diagram("i", "i")),)))
    text = describe(Network("deep", (*map(layer_step, range(3)), head), "Deep model"))
    assert text.startswith(
        "Network Deep model: 4 steps in order. Steps 1 to 3 repeat the next 1 step 3 times, "
        "x1 becoming x0 of the next round. Step 1 computes x1. Tensor diagram layer: 2 tensors."
    )
    assert text.count("Tensor diagram layer") == 1
    assert "Step 4 computes head. Sum sum of 1 term." in text
    assert text.endswith("The value of the network is head.")
