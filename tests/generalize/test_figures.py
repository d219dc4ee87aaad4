"""Properties as a picture."""

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.generalize.strategies import drawn, random_network
from torch import nn

from rankscope.errors import OutputError
from rankscope.factorize import CPLinear
from rankscope.generalize import Options, Sample, analyse, draw_properties


@pytest.mark.slow
def test_a_figure_is_the_same_bytes_each_time(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    found = analyse(
        random_network(0), drawn(random_network(0), 0).sample, 1.0, options=Options(num_jacobians=0)
    )
    first, second = (draw_properties(found, tmp_path / name) for name in ("a.svg", "b.svg"))
    assert first.read_bytes() == second.read_bytes()
    assert b"</svg>" in first.read_bytes()


@pytest.mark.slow
def test_layers_of_one_component_and_dead_ones_can_be_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    layers: list[Any] = [CPLinear(2, 2, rank=1) for _ in range(9)]
    nn.init.constant_(layers[0].bias, -100.0)
    model = nn.Sequential(layers[0], nn.ReLU(), *layers[1:]).double()
    sample = Sample(torch.ones(2, 2), torch.zeros(2, dtype=torch.long))
    found = analyse(model, sample, 1.0, options=Options(num_jacobians=0))
    assert draw_properties(found, tmp_path / "dead.svg").is_file()


def test_an_unknown_ending_is_refused(tmp_path: Path) -> None:
    found = analyse(
        random_network(1), drawn(random_network(1), 1).sample, 1.0, options=Options(num_jacobians=0)
    )
    with pytest.raises(OutputError, match=r"properties\.txt"):
        draw_properties(found, tmp_path / "properties.txt")
