"""Accuracy that is proved, beside the accuracy that an attack leaves: the truth is between them.

certify(model, inputs, labels, [36 / 255, 72 / 255]).to_dict()

What is called certified holds for the model as it runs, in its own floats or in those that it is
converted to; what holds only for exact arithmetic on its weights is a number of its own.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from rankscope.display import Table, fragment
from rankscope.drawing.raster import write_figure
from rankscope.drawing.themes import LIGHT
from rankscope.errors import RobustnessError, printable
from rankscope.modes import inference
from rankscope.progress import Report, ignore
from rankscope.robust.attacks import Attack, AutoProjectedDescent, Threat, require_pixels, walk_edge
from rankscope.robust.attacks import attack as carry_out
from rankscope.robust.lipschitz import require_finite
from rankscope.robust.margins import require_labels
from rankscope.robust.methods import Lipschitz, Method, Proof, Samples
from rankscope.robust.norms import L2, Norm
from rankscope.robust.rounding import own_floats
from rankscope.robust.running_floats import in_floats

_BATCH_SIZE = 256
_INK, _MUTED = LIGHT.label("caption"), LIGHT.label("muted")
_PROVED, _BETWEEN = LIGHT.shape("parameter").stroke, LIGHT.shape("parameter").fill
_ATTACKED = LIGHT.wire("cut").color


@dataclass(frozen=True)
class CertifiedRadius:
    """Accuracies at one radius.

    Args:
        radius: of perturbations.
        certified: share of samples that are right and proved to stay so in the model's own floats.
        attacked: share that is right after the attack, which ends at the very edge of the ball.
        certified_exact_arithmetic: share that would be proved if the model computed exactly.
    """

    radius: float
    certified: float
    attacked: float
    certified_exact_arithmetic: float

    @property
    def lost_to_rounding(self) -> float:
        """Share that would be certified if the model computed exactly, and is not."""
        return self.certified_exact_arithmetic - self.certified


@dataclass(frozen=True)
class Certification:
    """What was proved about a model on some samples, and what an attack could not refute.

    Args:
        clean: accuracy without any perturbation.
        radii: in increasing order.
        norm: that radii are measured in.
        method: of the proof.
        attack: of the attack.
        num_samples: how many there were.
        lipschitz: the bound that was used, or None.
        assumptions: what must hold for it.
        arithmetic: the floats for which it holds, such as float32; None if the method does not say.
    """

    clean: float
    radii: tuple[CertifiedRadius, ...]
    norm: str
    method: str
    attack: str
    num_samples: int
    lipschitz: float | None
    assumptions: tuple[str, ...]
    arithmetic: str | None = None

    def __str__(self) -> str:
        rows = (
            f"{row.radius:.4g}: {row.certified:.2%} certified, {row.attacked:.2%} after the attack"
            for row in self.radii
        )
        return "\n".join((f"clean {self.clean:.2%}", *rows))

    def _repr_html_(self) -> str:
        rows = [
            (f"{row.radius:.4g}", f"{row.certified:.2%}", f"{row.attacked:.2%}")
            for row in self.radii
        ]
        head = ("radius", "certified", "right after the attack")
        setting = (
            f"Accuracy without perturbation {self.clean:.2%} on {self.num_samples:,} samples; "
            f"norm {self.norm}, proof by {self.method}, attack {self.attack}, run in "
            f"{self.arithmetic or 'its own floats'}."
        )
        facts = (setting, *self.assumptions)
        return fragment("Robustness", facts, Table(head, rows, numbers=(0, 1, 2)))

    def to_dict(self) -> dict[str, Any]:
        """Plain data for a JSON document."""
        return {
            "clean": self.clean,
            "radii": [vars(row) for row in self.radii],
            "norm": self.norm,
            "method": self.method,
            "attack": self.attack,
            "samples": self.num_samples,
            "lipschitz": self.lipschitz,
            "arithmetic": self.arithmetic,
            "assumptions": list(self.assumptions),
        }


def certify(  # noqa: PLR0913 - the parts of a certification, all by name
    model: nn.Module,
    inputs: Tensor,
    labels: Tensor,
    radii: Sequence[float],
    *,
    norm: Norm | None = None,
    method: Method | None = None,
    attack: Attack | None = None,
    pixels: tuple[float, float] | None = (0.0, 1.0),
    dtype: torch.dtype | None = None,
    report: Report = ignore,
) -> Certification:
    """Clean, certified and attacked accuracy of a classifier.

    A label that is proved at one radius is proved at every smaller one, and one that is lost at one
    radius is lost at every larger one.

    Args:
        model: a classifier; in any mode, its inference mode is what is certified.
        inputs: (samples, …), in the units that radii are measured in.
        labels: (samples,).
        radii: at least one.
        norm: of perturbations; None for the Euclidean one.
        method: of the proof; None for Lipschitz constants.
        attack: that tries to refute it; None for APGD.
        pixels: smallest and largest value of an entry; None if there is no limit.
        dtype: in which the model is certified, attacked and to be run; it is converted before, and
            so are the inputs. None for the model's own.
        report: called with how far it is.

    Raises:
        RobustnessError: if the attack breaks a sample that is certified; or if numbers in the
            model or its outputs are not finite, or labels, inputs, radii or dtype do not fit.
        UnsupportedModuleError: if the method does not know an operation of the model.
    """
    norm = L2() if norm is None else norm
    ordered = sorted(set(radii))
    threats = [Threat(radius, norm, pixels) for radius in ordered]
    attack = AutoProjectedDescent() if attack is None else attack
    model, inputs = in_floats(model, inputs, dtype)
    with own_floats():
        proved = _prove(model, inputs, labels, threats, method, report)
        is_broken = _attacked(model, proved.samples, threats, attack, report)
    _require_consistent(proved.holds, is_broken, ordered, model=type(model).__name__)
    kept = (proved.holds, ~is_broken, proved.holds_exactly)
    shares = zip(ordered, *map(_shares, kept), strict=True)
    return Certification(
        float(proved.is_right.double().mean()),
        tuple(CertifiedRadius(*row) for row in shares),
        norm.name,
        proved.method,
        repr(attack),
        len(labels),
        proved.proof.lipschitz,
        proved.proof.assumptions,
        proved.proof.arithmetic,
    )


def lost_to_rounding(
    model: nn.Module,
    inputs: Tensor,
    labels: Tensor,
    threats: Sequence[Threat],
    *,
    method: Method | None = None,
    dtype: torch.dtype | None = None,
) -> tuple[float, ...]:
    """Shares of samples that only rounding keeps from a certificate, by proofs without an attack.

    Args:
        model: as for `certify`.
        inputs: (samples, …).
        labels: (samples,).
        threats: at least one, of one norm, in the order of their radii.
        method: of the proof; None for Lipschitz constants.
        dtype: in which the model would be run; None for its own.

    Raises:
        RobustnessError: as for `certify`.
        UnsupportedModuleError: if the method does not know an operation of the model.
    """
    model, inputs = in_floats(model, inputs, dtype)
    with own_floats():
        proved = _prove(model, inputs, labels, threats, method, ignore)
    return tuple(_shares(proved.holds_exactly & ~proved.holds))


@dataclass(frozen=True, eq=False)
class _Proved:
    """A proof, and which samples are right and certified by it, (threats, samples)."""

    method: str
    samples: Samples
    proof: Proof
    is_right: Tensor
    holds: Tensor
    holds_exactly: Tensor


def _prove(
    model: nn.Module,
    inputs: Tensor,
    labels: Tensor,
    threats: Sequence[Threat],
    method: Method | None,
    report: Report,
) -> _Proved:
    if not threats:
        raise RobustnessError("certify: wanted at least one radius, got none.")
    method = Lipschitz() if method is None else method
    require_pixels(inputs, threats[0].pixels)
    require_finite(model)
    samples = _run(model, inputs, labels)
    proof = method.prove(model, samples, threats, report)
    is_right = samples.outputs.argmax(dim=1) == labels
    exactly = proof.holds if proof.holds_exactly is None else proof.holds_exactly | proof.holds
    # What holds at a radius holds at all before it: the largest first, and back again.
    holds, holds_exactly = (
        (kept & is_right).flip(0).cummax(dim=0).values.flip(0) for kept in (proof.holds, exactly)
    )
    return _Proved(method.name, samples, proof, is_right, holds, holds_exactly)


def _attacked(
    model: nn.Module,
    samples: Samples,
    threats: Sequence[Threat],
    attack: Attack,
    report: Report,
) -> Tensor:
    """Whether samples are broken at each radius, (threats, samples); what is lost stays lost."""
    broken = [
        carry_out(
            model,
            samples.inputs,
            samples.labels,
            threat,
            by=attack,
            last=walk_edge,
            report=report,
        )
        for threat in threats
    ]
    return torch.stack([each.is_broken for each in broken]).cummax(dim=0).values


def _shares(rows: Tensor) -> list[float]:
    return [float(row.double().mean()) for row in rows]


def _run(model: nn.Module, inputs: Tensor, labels: Tensor) -> Samples:
    try:
        with torch.no_grad(), inference(model):
            outputs = torch.cat([model(batch) for batch in torch.split(inputs, _BATCH_SIZE)])
    except (RuntimeError, TypeError, ValueError, IndexError) as error:
        floats = str(inputs.dtype).removeprefix("torch.")
        raise RobustnessError(
            f"{type(model).__name__} cannot be run on samples of shape {tuple(inputs.shape[1:])} "
            f"in {floats}: {printable(str(error))}"
        ) from error
    require_labels(outputs, labels)
    return Samples(inputs, labels, outputs)


def _require_consistent(
    holds: Tensor, is_broken: Tensor, radii: Sequence[float], *, model: str
) -> None:
    wrong = holds & is_broken
    if bool(wrong.any()):
        at, sample = (int(number) for number in wrong.nonzero()[0])
        raise RobustnessError(
            f"{model}: {int(wrong.any(dim=0).sum())} of {wrong.shape[1]} samples are certified and "
            f"yet broken by the attack, the first at radius {radii[at]:.6g} (sample {sample}). "
            "The certificate is wrong: the model does not compute what its weights say, or the "
            "method has an error."
        )


def draw_certification(certification: Certification, path: Path | str) -> Path:
    """Draw certified accuracy over the radius, and the attack's curve above it.

    The true robust accuracy lies between both. The same certification gives the same bytes.

    Args:
        certification: what was proved.
        path: of a .svg, .pdf or .png file.

    Raises:
        OutputError: if the ending is none of these, or the file cannot be written.
        MissingExtraError: if matplotlib is not installed.
    """
    return write_figure(path, lambda: _figure(certification), what="a certification")


# Matplotlib's classes can only be named where it is imported; hence Any.
def _figure(certification: Certification) -> Any:
    from matplotlib.figure import Figure
    from matplotlib.ticker import PercentFormatter

    figure = Figure(figsize=(6.0, 4.0), layout="constrained", facecolor=LIGHT.background)
    axes = figure.add_subplot()
    # At radius 0 there is nothing to prove and nothing to attack with.
    rows = [row for row in certification.radii if row.radius > 0]
    radii = [0.0, *(row.radius for row in rows)]
    certified = [certification.clean, *(row.certified for row in rows)]
    attacked = [certification.clean, *(row.attacked for row in rows)]
    axes.fill_between(radii, certified, attacked, color=_BETWEEN, alpha=0.5, linewidth=0)
    axes.plot(radii, attacked, color=_ATTACKED, marker="o", label="after the attack")
    axes.plot(
        radii, certified, color=_PROVED, marker="s", label=f"certified ({certification.method})"
    )
    axes.set_xlim(left=0.0)
    axes.set_ylim(0.0, 1.02)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set_xlabel(f"radius of perturbations, {certification.norm}", color=_INK)
    axes.set_ylabel("accuracy", color=_INK)
    axes.set_title(
        f"The truth is between the curves ({certification.num_samples:,} samples)",
        loc="left",
        color=_INK,
    )
    axes.tick_params(colors=_MUTED)
    axes.grid(color=_MUTED, alpha=0.15, linewidth=0.6)
    for spine in axes.spines.values():
        spine.set_color(_MUTED)
    axes.legend(labelcolor=_INK)
    return figure
