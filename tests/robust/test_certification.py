"""certified ≤ attacked ≤ clean, on every model and method; broken models are caught."""

import json
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from rankscope.errors import MissingExtraError, OutputError, RobustnessError
from rankscope.progress import Progress, Report, ignore
from rankscope.robust import (
    L2,
    AutoProjectedDescent,
    Certification,
    CertifiedRadius,
    Intervals,
    LinearBounds,
    Linf,
    Lipschitz,
    MaxMin,
    Method,
    Norm,
    OrthogonalConv2d,
    OrthogonalLinear,
    ProjectedDescent,
    Proof,
    ResNet9,
    Samples,
    Threat,
    certify,
    draw_certification,
)

METHODS: list[Method] = [
    Lipschitz(),
    Intervals(),
    LinearBounds(inner_intervals=True),
    LinearBounds(),
]


def ordinary() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(32, 3))


def orthogonal() -> nn.Sequential:
    return nn.Sequential(OrthogonalConv2d(1, 4, 3), MaxMin(), nn.Flatten(), OrthogonalLinear(64, 3))


def samples(model: nn.Module, seed: int, count: int = 12) -> tuple[Tensor, Tensor]:
    inputs = torch.rand(count, 1, 4, 4, generator=torch.Generator().manual_seed(seed))
    with torch.no_grad():
        labels = model(inputs).argmax(dim=1)
    labels[0] = (labels[0] + 1) % 3  # one that is wrong from the start
    return inputs, labels


def check(found: Certification, clean: float) -> None:
    assert found.clean == pytest.approx(clean)
    before = CertifiedRadius(0.0, found.clean, found.clean, found.clean)
    for row in found.radii:
        assert row.radius > before.radius or row.radius == 0
        assert row.certified <= row.attacked <= found.clean
        assert row.certified <= before.certified
        assert row.attacked <= before.attacked
        before = row


@pytest.mark.slow
@settings(deadline=None, max_examples=6)
@given(
    seed=st.integers(0, 2**16),
    norm=st.sampled_from([L2(), Linf()]),
    method=st.sampled_from(METHODS),
)
def test_certified_attacked_and_clean_are_in_order(seed: int, norm: Norm, method: Method) -> None:
    torch.manual_seed(seed)
    model = ordinary()
    inputs, labels = samples(model, seed)
    found = certify(
        model,
        inputs,
        labels,
        [0.3, 0.0, 0.01, 0.1],
        norm=norm,
        method=method,
        attack=AutoProjectedDescent(steps=8),
    )
    check(found, 11 / 12)
    assert [row.radius for row in found.radii] == [0.0, 0.01, 0.1, 0.3]
    assert (found.norm, found.method) == (norm.name, method.name)
    assert (found.lipschitz is not None) == isinstance(method, Lipschitz)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_networks_of_orthogonal_layers_are_certified_at_real_radii(seed: int) -> None:
    torch.manual_seed(seed)
    model = orthogonal()
    inputs, labels = samples(model, seed)
    found = certify(model, inputs, labels, [1e-4, 0.05], method=Lipschitz(declared=1.0))
    check(found, 11 / 12)
    assert found.lipschitz == pytest.approx(1.0, abs=1e-4)
    assert found.radii[0].certified > 0.5


@pytest.mark.slow
def test_the_certificate_of_a_linear_classifier_meets_the_attack() -> None:
    """Of two classes, both are exact, so that nothing is left between the curves."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, 2))
    inputs, labels = samples(model, 0)
    labels %= 2
    methods = (Lipschitz(), Intervals(), LinearBounds())
    for method in methods:
        found = certify(model, inputs, labels, [0.05, 0.2, 0.4], method=method, pixels=(-9.0, 9.0))
        assert [row.certified for row in found.radii] == [row.attacked for row in found.radii]


def scaled_by_3(model: nn.Module) -> nn.Module:
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(3)
    return model


@pytest.mark.slow
def test_an_exported_kernel_scaled_by_3_is_caught_not_certified() -> None:
    torch.manual_seed(0)
    network = ResNet9(width=2, image=(1, 16, 16), num_classes=3)
    first = network.features[0]
    assert isinstance(first, OrthogonalConv2d)
    inputs = torch.rand(4, 1, 16, 16)
    with torch.no_grad():
        labels = network.eval()(inputs).argmax(dim=1)
    quick = ProjectedDescent(steps=1)
    found = certify(network, inputs, labels, [1e-4], attack=quick)
    assert found.lipschitz == pytest.approx(1.0, abs=1e-3)
    network.features[0] = scaled_by_3(first.to_conv2d())
    with torch.no_grad():
        labels = network.eval()(inputs).argmax(dim=1)
    with pytest.raises(
        RobustnessError,
        match=r"should have a Lipschitz constant of 1, .* only by 3.*features\.0",
    ):
        certify(network, inputs, labels, [1e-4])
    # As a model that promises nothing it is measured, and its certificates count the 3.
    found = certify(nn.Sequential(network), inputs, labels, [1e-4], attack=quick)
    assert found.lipschitz == pytest.approx(3.0, rel=1e-3)


@dataclass(frozen=True)
class Assumed(Method):
    """Believes that the Lipschitz constant is 1, whatever the weights are."""

    @property
    def name(self) -> str:
        return "assumed"

    def prove(
        self,
        model: nn.Module,
        samples: Samples,
        threats: Sequence[Threat],
        report: Report = ignore,
    ) -> Proof:
        best = samples.outputs.topk(2, dim=1).values
        radii = (best[:, 0] - best[:, 1]) / math.sqrt(2)
        return Proof(torch.stack([radii > threat.radius for threat in threats]), None, ())


def test_a_certificate_that_the_attack_refutes_is_an_error() -> None:
    torch.manual_seed(0)
    model = orthogonal()
    first = model[0]
    assert isinstance(first, OrthogonalConv2d)
    broken = nn.Sequential(scaled_by_3(first.to_conv2d()), *list(model)[1:])
    inputs, labels = samples(broken, 0)
    labels[0] = broken(inputs[:1]).argmax()
    with torch.no_grad():
        best = broken(inputs).topk(2, dim=1).values
    radius = float((best[:, 0] - best[:, 1]).max()) / math.sqrt(2) * 0.99
    with pytest.raises(
        RobustnessError, match=r"\d+ of 12 samples are certified and yet broken .* radius \d"
    ):
        certify(broken, inputs, labels, [radius], method=Assumed(), pixels=None)
    certify(broken, inputs, labels, [radius], pixels=None)


def test_what_is_proved_at_a_radius_holds_at_smaller_ones_and_losses_stay() -> None:
    @dataclass(frozen=True)
    class Patchy(Assumed):
        def prove(
            self,
            model: nn.Module,
            samples: Samples,
            threats: Sequence[Threat],
            report: Report = ignore,
        ) -> Proof:
            holds = torch.zeros(len(threats), len(samples.labels), dtype=torch.bool)
            holds[1] = True
            return Proof(holds, None, ())

    model = nn.Sequential(nn.Flatten(), nn.Linear(16, 3))
    inputs, labels = samples(model, 0)
    found = certify(model, inputs, labels, [1e-7, 1e-6, 1e-5], method=Patchy())
    assert [row.certified for row in found.radii] == [11 / 12, 11 / 12, 0.0]


def test_the_document_is_what_machines_read() -> None:
    torch.manual_seed(0)
    model = ordinary()
    inputs, labels = samples(model, 0)
    found = certify(model, inputs, labels, [0.1], attack=ProjectedDescent(steps=2))
    document = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert document["clean"] == found.clean
    assert set(document["radii"][0]) == {
        *("radius", "certified", "attacked"),
        "certified_exact_arithmetic",
    }
    assert document["samples"] == 12
    assert "ProjectedDescent(steps=2" in document["attack"]
    assert str(found).startswith("clean 91.67%\n0.1: ")


def test_progress_tells_of_proofs_and_attacks() -> None:
    seen: list[Progress] = []
    model = ordinary()
    inputs, labels = samples(model, 0)
    certify(model, inputs, labels, [0.01, 0.1], method=Intervals(), report=seen.append)
    assert {step.what for step in seen} == {"certifying", "attacking"}
    assert [(s.done, s.total) for s in seen if s.what == "certifying"] == [(1, 2), (2, 2)]


def test_refusals_name_the_numbers() -> None:
    model = ordinary()
    inputs, labels = samples(model, 0)
    with pytest.raises(RobustnessError, match="at least one radius, got none"):
        certify(model, inputs, labels, [])
    with pytest.raises(RobustnessError, match="finite, got -1"):
        certify(model, inputs, labels, [-1.0])
    with pytest.raises(RobustnessError, match=r"within 0\.0 to 1\.0, got"):
        certify(model, inputs + 1, labels, [0.1])
    with pytest.raises(RobustnessError, match=r"Labels must be 0\.\.2"):
        certify(model, inputs, labels + 3, [0.1])
    with torch.no_grad():
        next(model.parameters())[0] = math.inf
    with pytest.raises(RobustnessError, match=r"9 of 18 numbers in 0\.weight are not finite"):
        certify(model, inputs, labels, [0.1], method=Intervals())


FOUND = Certification(
    0.9,
    (
        CertifiedRadius(0.0, 0.9, 0.9, 0.9),
        CertifiedRadius(0.1, 0.6, 0.8, 0.6),
        CertifiedRadius(0.2, 0.0, 0.5, 0.1),
    ),
    "l2",
    "lipschitz",
    "none",
    10,
    1.0,
    (),
)


@pytest.mark.parametrize("ending", ["svg", "png", "pdf"])
def test_the_figure_has_the_same_bytes_twice(tmp_path: Path, ending: str) -> None:
    first, second = (draw_certification(FOUND, tmp_path / f"{n}.{ending}") for n in "ab")
    assert first.read_bytes() == second.read_bytes()
    assert len(first.read_bytes()) > 1000


def test_without_matplotlib_the_missing_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtraError, match=r"Drawing a certification needs matplotlib"):
        draw_certification(FOUND, tmp_path / "a.svg")


def test_other_endings_are_refused(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"a certification writes .svg, .pdf, .png, got 'a.txt'"):
        draw_certification(FOUND, tmp_path / "a.txt")
