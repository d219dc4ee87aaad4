from random import Random

import pytest

from rankscope.diagrams import Diagram, Index, Node
from rankscope.diagrams.families import tensor_ring, tensor_train
from rankscope.drawing import crossings, lay_out, lint
from rankscope.drawing.layout import Mesh, Wiring, place_grid


def lattice(num_rows: int, num_columns: int, *, is_open: bool = False, seed: int = 0) -> Diagram:
    """A grid of tensors, declared in any order."""
    held: dict[tuple[int, int], list[str]] = {
        (row, column): [] for row in range(num_rows) for column in range(num_columns)
    }
    for row, column in held:
        for other in ((row + 1, column), (row, column + 1)):
            if other in held:
                name = f"{row},{column};{other[0]},{other[1]}"
                held[(row, column)].append(name)
                held[other].append(name)
        if is_open:
            held[(row, column)].append(f"{row},{column}")
    nodes = [Node(f"T{r}{c}", tuple(names), label="T") for (r, c), names in held.items()]
    Random(seed).shuffle(nodes)
    indices = dict.fromkeys(name for names in held.values() for name in names)
    output = tuple(name for name in indices if ";" not in name)
    labelled = tuple(Index(name, label="D") for name in indices)
    return Diagram("lattice", labelled, tuple(nodes), output)


@pytest.mark.parametrize(("num_rows", "num_columns"), [(2, 2), (2, 5), (3, 3), (4, 3)])
@pytest.mark.parametrize("seed", [0, 1])
def test_a_grid_is_recognised_in_any_order(num_rows: int, num_columns: int, seed: int) -> None:
    placement = place_grid(Mesh(Wiring(lattice(num_rows, num_columns, seed=seed))), {})
    assert placement is not None
    xs = {x for x, _ in placement.nodes.values()}
    ys = {y for _, y in placement.nodes.values()}
    assert sorted((len(xs), len(ys))) == sorted((num_rows, num_columns))
    assert len(set(placement.nodes.values())) == num_rows * num_columns


@pytest.mark.parametrize("is_open", [False, True])
def test_grids_are_drawn_straight_and_without_faults(is_open: bool) -> None:
    scene = lay_out(lattice(3, 4, is_open=is_open))
    bonds = [wire for wire in scene.wires if ";" in wire.name]
    for wire in bonds:
        (x0, y0), (x1, y1) = wire.points
        assert x0 == x1 or y0 == y1
    assert lint(scene) == ()
    assert crossings(scene) == 0


@pytest.mark.parametrize("diagram", [tensor_train(order=4), tensor_ring(order=6)])
def test_chains_and_rings_are_no_grids(diagram: Diagram) -> None:
    assert place_grid(Mesh(Wiring(diagram)), {}) is None
