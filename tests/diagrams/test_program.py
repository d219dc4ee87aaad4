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
    einsum_program,
)


def indices(names: str) -> tuple[Index, ...]:
    return tuple(Index(name) for name in names.split())


def attention(scale: str, *, causal: bool = False) -> Diagram:
    return Diagram(
        "attention",
        (*indices("n m f g e o c h"), Index("d", symbol="D")),
        (
            Node("Xq", ("n", "f"), Role.DATA),
            Node("WQ", ("f", "d", "h")),
            Node("WK", ("g", "d", "h")),
            Node("Xk", ("m", "g"), Role.DATA),
            Node("WV", ("e", "c", "h")),
            Node("Xv", ("m", "e"), Role.DATA),
            Node("WO", ("o", "c", "h"), array="out", rows=(0, 8)),
        ),
        ("n", "o"),
        regions=(
            Region(
                "A",
                ("Xq", "WQ", "WK", "Xk"),
                Function("softmax"),
                over=("m",),
                scale=scale,
                causal=("n", "m") if causal else None,
            ),
        ),
    )


def test_attention_is_two_lines() -> None:
    assert einsum_program(attention("D**-0.5")).lines == (
        'A = softmax(D**-0.5 * einsum("nf,fdh,gdh,mg->nhm", Xq, WQ, WK, Xk), over="m")',
        'result = einsum("nhm,ech,me,och->no", A, WV, Xv, out[0:8])',
    )


def test_a_mask_is_written_around_what_it_masks_and_a_sum_in_parentheses() -> None:
    first = einsum_program(attention("D + 1", causal=True)).lines[0]
    inner = '(D + 1) * einsum("nf,fdh,gdh,mg->nhm", Xq, WQ, WK, Xk)'
    assert first == f'A = softmax(causal({inner}, query="n", key="m"), over="m")'


def test_convolutions_say_which_positions_belong_together() -> None:
    diagram = Diagram(
        "conv",
        indices("s height width u v t x y"),
        (
            Node("X", ("s", "height", "width"), Role.DATA),
            Node("K", ("t", "s", "u", "v")),
            Node("1", ("t",), Role.CONSTANT, fill=0.5),
        ),
        ("t", "x", "y"),
        (
            Convolution("rows", "height", "u", "x", 2, (1, 1), 3),
            Convolution("columns", "width", "v", "y", padding_mode="circular"),
        ),
    )
    (line,) = einsum_program(diagram).lines
    assert line == (
        'result = einsum("shw,tsuv,t->txy", X, K, 0.5, '
        'where="h = 2*x + 3*u - 1, w = y + v (circular)")'
    )


def test_networks_write_sums_steps_and_look_ups() -> None:
    embed = Diagram(
        "embed",
        indices("n v f"),
        (Node("ids", ("n", "v"), Role.DATA, is_one_hot=True), Node("E", ("v", "f"))),
        ("n", "f"),
    )
    act = Diagram(
        "act",
        indices("n f"),
        (Node("X", ("n", "f"), Role.DATA, array="x"),),
        ("n", "f"),
        regions=(Region("x", ("X",), Function("gelu", (("approximate", "tanh"),))),),
    )
    skip = Diagram(
        "skip", indices("n f"), (Node("X", ("n", "f"), Role.DATA, array="x"),), ("n", "f")
    )
    network = Network(
        "net", (Step("x", embed), Step("y", Sum("sum", (Term(act), Term(skip, -2.0)))))
    )
    assert str(einsum_program(network)).splitlines() == [
        'x = einsum("nv,vf->nf", one_hot(ids), E)',
        "y.0.x = gelu(einsum(\"nf->nf\", x), approximate='tanh')",
        'y = einsum("nf->nf", y.0.x) + -2 * einsum("nf->nf", x)',
    ]
