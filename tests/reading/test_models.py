"""Whole models: read, drawn, priced, stored, and run again."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from rankscope.diagrams import (
    Box,
    Call,
    Network,
    collapse,
    describe,
    flattened,
    from_dict,
    module_arrays,
    to_dict,
    to_module,
    to_source,
)
from rankscope.diagrams.cost import cost
from rankscope.drawing import draw
from rankscope.errors import SizeError
from rankscope.reading import from_module

sys.path.insert(0, str(Path(__file__).parent))
import zoo  # type: ignore[import-not-found]


class Several(nn.Module):
    """Several outputs in a structure, a constant made on the way, an operator without a rule."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor, scale: Tensor) -> dict[str, Any]:
        table = torch.arange(4.0) / 3
        values, places = torch.topk(self.linear(x) + table, 2)
        parts = torch.cat([x[:, ::2], values * scale], 1)
        return {"parts": (parts, None), "places": places, "given": x, "count": 3}


class Pooled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU())
        self.head = nn.Linear(4 * 9, 5)

    def forward(self, images: Tensor) -> Tensor:
        pooled = nn.functional.max_pool2d(self.stem(images), 2)
        logits: Tensor = self.head(pooled.flatten(1))
        return logits


def run(network: Network, module: nn.Module, *inputs: Tensor) -> Any:
    return to_module(network, module_arrays(module))(*inputs)


def test_outputs_have_the_structure_of_the_module_s() -> None:
    module, inputs = Several(), (torch.randn(3, 4), torch.randn(3, 1))
    network = from_module(module, inputs)
    wanted, made = module(*inputs), run(network, module, *inputs)
    assert list(made) == list(wanted)
    assert made["parts"][1] is None
    assert made["count"] == 3
    torch.testing.assert_close(made["parts"][0], wanted["parts"][0])
    torch.testing.assert_close(made["places"], wanted["places"])
    torch.testing.assert_close(made["given"], wanted["given"])


def test_what_has_no_rule_is_opaque_and_what_moves_numbers_is_not() -> None:
    network = from_module(Several(), (torch.randn(3, 4), torch.randn(3, 1)))
    calls = {s.body.kind: s.body.is_exact for s in network.steps if isinstance(s.body, Call)}
    assert calls == {"topk": False, "slice": True, "cat": True}
    assert cost(network).opaque == (("topk", 1),)
    assert "and 1 opaque step (topk × 1)" in str(cost(network))
    assert "topk (opaque operation, no contraction) takes" in describe(network)


def test_constants_belong_to_the_network_and_documents_keep_everything() -> None:
    module, inputs = Several(), (torch.randn(3, 4), torch.randn(3, 1))
    network = from_module(module, inputs)
    assert [constant.shape for constant in network.constants] == [(4,)]
    again = from_dict(json.loads(json.dumps(to_dict(network))))
    assert again == network
    torch.testing.assert_close(
        run(network, module, *inputs)["parts"][0], module(*inputs)["parts"][0]
    )


@pytest.mark.parametrize("ending", ["svg", "png"])
@pytest.mark.parametrize("depth", [None, 1])
def test_every_kind_of_step_is_drawn(depth: int | None, ending: str, tmp_path: Path) -> None:
    network = from_module(Pooled().eval(), (2, 3, 8, 8), depth=depth)
    assert draw(network, tmp_path / f"network.{ending}").stat().st_size > 1000


def test_modules_at_a_depth_are_boxes_that_run_and_cost_the_same() -> None:
    module, images = Pooled().eval(), torch.randn(2, 3, 8, 8)
    whole, outline = from_module(module, images), from_module(module, images, depth=1)
    kinds = {s.name: s.body.class_name for s in outline.steps if isinstance(s.body, Box)}
    assert kinds == {"stem": "Sequential", "head": "Linear"}
    torch.testing.assert_close(run(outline, module, images), module(images))
    assert cost(outline).flops == cost(flattened(outline)).flops == cost(whole).flops
    assert from_dict(to_dict(outline)) == outline


def test_a_depth_below_one_is_refused() -> None:
    with pytest.raises(SizeError, match="depth must be at least 1, got 0"):
        from_module(nn.Linear(2, 2), (1, 2), depth=0)


@pytest.mark.slow
@pytest.mark.parametrize("depth", [None, 1])
def test_equal_layers_are_one_block(depth: int | None) -> None:
    layers = nn.Sequential(
        *(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True) for _ in "12345")
    )
    network = from_module(layers, (2, 3, 8), depth=depth)
    assert max(block.count for block in collapse(network)) == 5


def test_the_source_calls_what_has_no_rule() -> None:
    source = to_source(from_module(Pooled().eval(), (2, 3, 8, 8)))
    assert "torch.ops.aten.max_pool2d.default(" in source


def test_a_tied_parameter_has_all_its_names_and_is_counted_once() -> None:
    module = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False))
    module[1].weight = module[0].weight
    assert list(module_arrays(module)) == ["0.weight", "1.weight"]
    network, inputs = from_module(module, (2, 3)), torch.randn(2, 3)
    torch.testing.assert_close(run(network, module, inputs), module(inputs))
    assert cost(network).parameters == 9


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["resnet18", "deit_tiny_patch16_224", "Llama", "BERT", "GPT-2", "Mamba", "T5 encoder"]
)
def test_a_model_of_another_library_runs_again_and_costs_what_torch_counts(name: str) -> None:
    given = next(model for model in zoo.models() if model.name == name)
    module, example = given.build(), given.example
    if isinstance(example, Tensor):
        example = example[:1]
    options = {} if isinstance(example, Tensor) else example
    inputs = (example,) if isinstance(example, Tensor) else ()
    network = from_module(module, example)
    counter = FlopCounterMode(display=False)
    # Of attention in one piece, torch counts nothing on a processor.
    with torch.no_grad(), counter, sdpa_kernel(SDPBackend.MATH):
        wanted = module(*inputs, **options)
    with torch.no_grad():
        made = to_module(network, module_arrays(module))(*inputs, **options)
    assert type(made) is type(wanted)
    first, second = (r if isinstance(r, Tensor) else r[0] for r in (made, wanted))
    torch.testing.assert_close(first, second, rtol=1e-4, atol=1e-4)
    if name in ("resnet18", "BERT"):
        # Ours also counts scales of normalizations, which torch leaves out.
        assert counter.get_total_flops() <= cost(network).flops <= 1.02 * counter.get_total_flops()


def test_a_network_may_name_only_outputs_that_are_there() -> None:
    network = from_module(nn.Linear(2, 2), (1, 2))
    with pytest.raises(Exception, match="should give 'nothing', which no step makes"):
        replace(network, outputs=("nothing",))


def test_sizes_that_do_not_fit_are_refused_with_the_reason_of_torch() -> None:
    with pytest.raises(SizeError, match=r"Linear cannot be run on \(1, 3\): .*shapes"):
        from_module(nn.Linear(2, 2), (1, 3))
    with pytest.raises(SizeError, match="has a size below 1"):
        from_module(nn.Linear(2, 2), (0, 2))


RECURRENCES = [
    (nn.LSTM, {"num_layers": 2, "batch_first": True}, 4),
    (nn.LSTM, {"proj_size": 3}, 4),
    (nn.GRU, {"bidirectional": True}, 3),
    (nn.RNN, {}, 1),
    (nn.RNN, {"nonlinearity": "relu", "bias": False}, 1),
]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "options", "gates"), RECURRENCES)
def test_a_recurrence_is_one_exact_call_with_its_equations(
    kind: type[nn.Module], options: dict[str, Any], gates: int, tmp_path: Path
) -> None:
    module = kind(6, 5, **options).eval()
    inputs = torch.randn(2, 4, 6)
    network = from_module(module, inputs)
    (call,) = (step.body for step in network.steps if isinstance(step.body, Call))
    assert call.is_exact
    assert r"\mathbf{h}_{t-1}" in " ".join(call.equations)
    matrices = [p for p in module.parameters() if p.ndim == 2]
    assert cost(network).flops == 2 * 8 * sum(p.numel() for p in matrices)
    assert matrices[0].shape[0] == gates * 5
    assert cost(network).opaque == ()
    assert "exact recurrence" in describe(network)
    assert from_dict(to_dict(network)) == network
    text = draw(network, tmp_path / "recurrence.svg").read_text()
    assert "opaque" not in text
    made, wanted = run(network, module, inputs), module(inputs)
    torch.testing.assert_close(made, wanted)


@pytest.mark.slow
def test_cells_are_read_as_recurrences() -> None:
    class Cells(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.LSTMCell(6, 5), nn.GRUCell(5, 5)

        def forward(self, x: Tensor) -> Tensor:
            hidden, state = self.first(x)
            made: Tensor = self.second(hidden, state)
            return made

    module, inputs = Cells(), torch.randn(3, 6)
    network = from_module(module, inputs)
    assert cost(network).opaque == ()
    assert cost(network).flops == 2 * 3 * (20 * 6 + 20 * 5 + 15 * 5 + 15 * 5)
    torch.testing.assert_close(run(network, module, inputs), module(inputs))


def test_linear_calls_are_priced_and_moves_are_free() -> None:
    class Moves(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            larger = nn.functional.interpolate(x, scale_factor=2, mode="bilinear")
            rolled = nn.functional.pad(torch.roll(larger, 1, 2), (1, 1))
            return torch.cat([rolled, rolled], 1)

    inputs = torch.randn(1, 2, 4, 4)
    network = from_module(Moves(), inputs)
    assert [s.body.kind for s in network.steps if isinstance(s.body, Call)] == [
        "upsample_bilinear2d",
        "roll",
        "pad",
        "cat",
    ]
    # Four products and sums for each of 1·2·8·8 outputs.
    assert cost(network).flops == 2 * 4 * 128
    assert "upsample_bilinear2d (exact linear map)" in describe(network)
    assert "roll (exact rearrangement)" in describe(network)
    torch.testing.assert_close(run(network, Moves(), inputs), Moves()(inputs))
