"""What a view changes, and that a picture depends on nothing but its input."""

import pytest

from rankscope.diagrams import Diagram, from_einsum
from rankscope.diagrams.families import (
    hierarchical_tucker,
    matrix_product,
    multi_head,
    multilayer_perceptron,
    tensor_ring,
    tensor_train,
    tucker,
)
from rankscope.drawing import View, lay_out, lint


@pytest.mark.parametrize(
    "diagram",
    [
        multi_head(num_queries=512, num_keys=512, num_features=768, num_heads=12, head_size=64),
        tensor_train(order=5, sizes=4096, bond_dimensions=1024),
        multilayer_perceptron(widths=(784, 2048, 10), batch_size=128),
        tucker(order=3, sizes=4096, tucker_ranks=1024),
        tucker(order=7, sizes=4096, tucker_ranks=65536),
        tensor_ring(order=5, sizes=4096, bond_dimensions=65536),
        hierarchical_tucker(order=6, sizes=4096, bond_dimensions=65536),
        from_einsum("abc,cde,bfg,gdh,eij,hik,fkl->ajl", sizes=dict.fromkeys("abcdefghijkl", 65536)),
    ],
)
def test_sizes_widen_gaps_until_no_label_touches_a_tensor(diagram: Diagram) -> None:
    plain, sized = lay_out(diagram), lay_out(diagram, view=View(show_sizes=True))
    assert lint(sized) == ()
    texts = [label.text for label in sized.labels if label.style.startswith("wire-")]
    assert texts
    assert all("=" in text for text in texts)
    assert sized.box[2] - sized.box[0] > plain.box[2] - plain.box[0]


def test_wires_grow_with_the_logarithm_of_the_size() -> None:
    diagram = matrix_product(num_rows=2, num_inner=4, num_columns=2**40)
    scene = lay_out(diagram, view=View(width_by_size=True))
    widths = {wire.name: wire.width for wire in scene.wires}
    assert widths == {
        "i": pytest.approx(1.2 + 0.42),
        "j": pytest.approx(1.2 + 0.84),
        "k": pytest.approx(6.0),
    }
