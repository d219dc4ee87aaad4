"""Topics that need a small training: regularizers and skip connections."""

from typing import Any

import numpy
import torch
from torch import nn

from rankscope.constructions.pictures_plots import Axes, draw_curves
from rankscope.constructions.skip_connections import branches, jacobian_range
from rankscope.constructions.topic import Shown, Topic
from rankscope.diagrams.drawing import draw
from rankscope.reading import from_module
from rankscope.experiments.teaching_regularizers import NOISE, REGULARIZERS, train
from rankscope.experiments.teaching_skip_connections import train_deep
from rankscope.experiments.topics.lecture import in_lecture, recalled

SEEDS, DEPTH, FIRST_LOOK = 3, 24, 6


class Residual(nn.Module):
    """A branch, added to its input; for its diagram."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(16, 16)
        self.outer = nn.Linear(16, 16)

    # To read the module, torch.fx passes a stand-in that is no tensor; hence Any.
    def forward(self, inputs: Any) -> Any:
        """The sum."""
        return inputs + self.outer(self.inner(inputs).relu())


def _regularizers() -> Shown:
    runs = {each.name: [train(each, seed=seed) for seed in range(SEEDS)] for each in REGULARIZERS}
    # The first steps are far off; early stopping walks as nothing does, weight decay as L2.
    curves = {
        name: (
            found[0].steps[FIRST_LOOK:],
            numpy.mean([run.test_losses[FIRST_LOOK:] for run in found], axis=0),
        )
        for name, found in runs.items()
        if name not in {"weight decay", "early stopping"}
    }
    words = Axes("Error on other points, mean of 3 seeds", "steps", "mean squared error")
    tests = {name: [run.test_losses[run.kept] for run in found] for name, found in runs.items()}
    gap = numpy.abs(numpy.subtract(tests["L2"], tests["weight decay"])).max()
    return Shown(
        {
            "seeds": SEEDS,
            "variance of the noise": NOISE**2,
            "weight decay and L2 give the same": bool(gap < 1e-9),
        },
        measured={
            **{
                f"{name}: error on the training points": float(
                    numpy.mean([run.train_losses[run.kept] for run in found])
                )
                for name, found in runs.items()
            },
            **{
                f"{name}: error on other points": float(numpy.mean(errors))
                for name, errors in tests.items()
            },
            "L1: share of weights that are zero": float(
                numpy.mean([run.zeros for run in runs["L1"]])
            ),
            "early stopping: steps": [float(run.steps[run.kept]) for run in runs["early stopping"]],
        },
        pictures={"errors": lambda path: draw_curves(curves, words, path)},
    )


def _skips() -> Shown:
    runs = {skips: train_deep(depth=DEPTH, with_skips=skips) for skips in (False, True)}
    names = {False: "without skips", True: "with skips"}
    places = list(range(1, DEPTH + 1))
    gradients = {names[skips]: (places, run.first_gradients) for skips, run in runs.items()}
    losses = {
        names[skips]: (list(range(len(run.losses))), run.losses) for skips, run in runs.items()
    }
    maps = branches(DEPTH, 16, generator=torch.Generator().manual_seed(0), gain=0.2)
    inputs = torch.ones(16, dtype=torch.float64)
    without, within = (jacobian_range(maps, inputs, with_skips=skips) for skips in names)
    low, high = within.skip_bounds
    return Shown(
        {
            "branches": DEPTH,
            "without skips, a step of the input shrinks by more than 10^10": without.largest
            < 1e-10,
            "with skips, least and greatest singular value are inside the bounds": bool(
                low <= within.smallest <= within.largest <= high
            ),
        },
        measured={
            "singular values of the derivative, with skips": [within.smallest, within.largest],
            "their bounds": [low, high],
            "first gradient of the first branch, without skips": runs[False].first_gradients[0],
            "first gradient of the first branch, with skips": runs[True].first_gradients[0],
            "accuracy after 100 steps, without skips": runs[False].accuracy,
            "accuracy after 100 steps, with skips": runs[True].accuracy,
        },
        pictures={
            "gradients": lambda path: draw_curves(
                gradients,
                Axes("First gradient of each branch", "branch", "norm", is_log_up=True),
                path,
            ),
            "losses": lambda path: draw_curves(
                losses, Axes(f"{DEPTH} branches learn two spirals", "step", "loss"), path
            ),
            "diagram": lambda path: draw(from_module(Residual().eval(), (1, 16)), path),
        },
    )


TRAINING = (
    Topic(
        "regularizers",
        "Regularizers: L1, L2, weight decay, dropout, early stopping",
        "A network with more weights than points can learn noise by heart. An L1 penalty makes "
        "weights exactly zero; an L2 penalty makes them small, and for plain gradient descent is "
        "the same as weight decay, step by step (not so for Adam); dropout leaves out half of the "
        "units each time; early stopping takes the best network on held-out points. Here 40 noisy "
        "points with 20 inputs, of which 3 matter, and 64 hidden units.",
        in_lecture("section 1.6 (a list)"),
        _regularizers,
    ),
    Topic(
        "skip-connections",
        "Skip connections",
        "With skips the derivative of each block is I + J instead of J. If the norms of all J are "
        "below 1, all singular values of the whole are between the products of 1 - ‖J‖ and of 1 + "
        "‖J‖: nothing is lost on the way. Without skips norms multiply: signal and gradients of "
        "deep networks fade unless every layer is scaled just right.",
        recalled("He, Zhang, Ren & Sun (2016)", "section 3", "1512.03385", "equal sizes"),
        _skips,
    ),
)
