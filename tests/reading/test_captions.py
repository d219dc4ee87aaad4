import pytest
from torch import Tensor, nn

from rankscope.diagrams import diagrams_of
from rankscope.reading import captioned, from_module
from rankscope.reading.captions import fraction_label, input_label, weight_label


def test_steps_and_the_nodes_that_read_them_have_one_label() -> None:
    layers = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))
    network = from_module(layers, (3, 4))
    assert [step.label for step in network.steps] == [r"\mathbf{X}_{1}", r"\mathbf{X}_{2}"]
    data = [diagram.nodes[0].label for diagram in diagrams_of(network)[::2]]
    assert data == [r"\mathbf{X}_{0}", r"\mathbf{X}_{1}"]


def test_a_single_step_is_y_of_x() -> None:
    network = from_module(nn.Tanh(), (3, 4))
    assert network.steps[0].label == r"\mathbf{Y}"
    assert diagrams_of(network)[0].nodes[0].label == r"\mathbf{X}"


def test_sizes_of_one_letter_are_primed_in_order_of_appearance() -> None:
    layers = nn.Sequential(
        nn.Linear(7, 5, bias=False), nn.Tanh(), nn.Linear(5, 7, bias=False), nn.Linear(7, 3)
    )
    network = from_module(layers, (2, 7))
    first = diagrams_of(network)[0]
    found = {index.size: (index.symbol, index.label) for index in first.indices}
    assert found == {
        2: ("B", None),
        7: ("F", None),
        5: ("F2", r"F^{\prime}"),
        3: ("F3", r"F^{\prime\prime}"),
    }


class Attention(nn.Module):
    def __init__(self, scale: float) -> None:
        super().__init__()
        self.scale = scale

    def forward(self, x: Tensor) -> Tensor:
        return (x @ x.mT * self.scale).softmax(-1)


@pytest.mark.slow
def test_a_scale_of_one_over_a_root_is_written_with_the_symbol() -> None:
    for scale, wanted in ((9**-0.5, "F**-0.5"), (0.25, "0.25")):
        (diagram,) = diagrams_of(from_module(Attention(scale), (2, 4, 9)))
        assert diagram.regions[0].scale == wanted


class Scaled(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return (x * 9**-0.5).relu()


def test_a_scale_is_a_root_only_of_what_is_summed() -> None:
    (diagram,) = diagrams_of(from_module(Scaled(), (2, 9)))
    assert diagram.regions[0].scale == repr(9**-0.5)


def test_where_a_sequence_meets_itself_the_second_is_m() -> None:
    (diagram,) = diagrams_of(from_module(Attention(0.25), (2, 4, 9)))
    assert [diagram.index_by_name[leg].tex for leg in diagram.output] == ["B", "N", "M"]
    assert diagram.regions[0].over == ("m",)


def test_captions_of_captions_are_the_same() -> None:
    network = from_module(nn.TransformerEncoderLayer(8, 2, 12).eval(), (5, 8))
    assert captioned(network, ["src"]) == network


def test_labels_come_from_names() -> None:
    assert weight_label("encoder.to_v.weight") == r"\mathbf{W}^{V}"
    assert weight_label("net.10.weight") == r"\mathbf{W}_{10}"
    assert weight_label("head.weight") == r"\mathbf{W}"
    assert input_label("x", 0) == r"\mathbf{X}_{0}"
    assert input_label("key_value", 1) == r"\mathbf{X}_{\mathrm{key\,value}}"
    assert [fraction_label(number) for number in (1.0, 1 / 3, 0.3)] == [
        r"\mathbf{1}",
        r"\frac{1}{3}",
        "0.3",
    ]
