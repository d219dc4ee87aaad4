"""`degree-budget`: which degree of a layer learns best with a budget of parameters?

Navon (2021) argues for degree 3, or e: the total degree d^(B / d) that B matrices buy is largest
there. Networks of degrees 2, 3, 4 and e learn polynomials that a lower degree provably cannot
represent, random functions and images.
"""

import copy
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor, nn

from rankscope.compression.training.least_squares import LeastSquares, fit_least_squares
from rankscope.compression.training.loop import fit, scores
from rankscope.compression.training.recipe import Cosine, Recipe
from rankscope.lab.experiments.baselines import BaselineEntry, fitted_regression
from rankscope.lab.experiments.claims import Claims, Pair, Score, Statement, Verdict
from rankscope.lab.experiments.degree_tasks import (
    CertifiedTask,
    ImageTask,
    TargetSearch,
    Task,
    TaskData,
    WaveTask,
)
from rankscope.lab.experiments.experiment import Entry, Experiment, Row, RunContext
from rankscope.lab.experiments.figure_lines import LineFigure
from rankscope.lab.experiments.figure_parts import Panel
from rankscope.lab.experiments.statements import count_as_claimed, judge
from rankscope.lab.experiments.table import Interval
from rankscope.networks.batches import TensorData
from rankscope.networks.degree import DegreeNetwork, widest_network
from rankscope.rank.measuring import measure_rank
from rankscope.rank.networks.degree import DegreePolynomial
from rankscope.rank.numeric import FunctionOptions, separation_rank
from rankscope.rank.partition import Partition
from rankscope.seeds import seed_of

# One row of `degree-budget`: a network of one degree within a budget, trained and measured.


RECIPE = Recipe(epochs=12, batch_size=128, learning_rate=1e-2, schedule=Cosine(), clip_norm=1.0)
# Exact ranks in more inputs than this are out of reach at these degrees: the others are held fixed.
MOST_MEASURED_INPUTS = 6
EPSILON = 0.01  # of the root mean square of the output
NUM_VALIDATION = 2048
_HALVES = 256  # samples that are paired for the epsilon rank


@dataclass(frozen=True)
class Budget:
    """The budget of parameters of a network.

    Args:
        matrices: B of the source, from which the depth follows: B over the degree, rounded down.
        num_parameters: at most; the width is the largest that fits.
    """

    matrices: int
    num_parameters: int

    def degrees(self, degree: float) -> tuple[float, ...]:
        """The degree of each layer; at least one layer.

        Example:
            >>> Budget(12, 3000).degrees(4.0), len(Budget(12, 3000).degrees(math.e))
            ((4.0, 4.0, 4.0), 4)
        """
        return (degree,) * max(1, int(self.matrices / degree))


@dataclass(frozen=True)
class DegreeEntry(Entry):
    """Train a network of a degree on a task, and measure it.

    Args:
        task: what is learned.
        budget: the same for all degrees that are compared.
        degree: of every layer, any real number from 1 on.
        recipe: its seed is that of the entry.
        second_order: how the training goes on after the recipe, on the same samples; None if it
            does not. The last `NUM_VALIDATION` training samples are then used for its end alone.
        seed: of the first weights, of the samples and of their order.
    """

    has_checkpoints: ClassVar[bool] = True

    task: Task
    budget: Budget
    degree: float
    recipe: Recipe = RECIPE
    second_order: LeastSquares | None = None
    seed: int = 0

    @property
    def name(self) -> str:
        """Task, budget and degree."""
        return f"{self.group}-degree-{degree_name(self.degree)}"

    @property
    def group(self) -> str:
        """Task and budget: what is compared."""
        return f"{self.task.name}-{self.budget.matrices}-matrices"

    @property
    def activation(self) -> nn.Module | None:
        """What follows every layer; None keeps the network a polynomial."""
        return None

    def build(self) -> DegreeNetwork:
        """The network before it is trained."""
        degrees = self.budget.degrees(self.degree)
        width = widest_network(
            num_inputs=self.task.num_inputs,
            degrees=degrees,
            num_outputs=self.task.num_outputs,
            num_parameters=self.budget.num_parameters,
        )
        return DegreeNetwork(
            num_inputs=self.task.num_inputs,
            width=width,
            degrees=degrees,
            num_outputs=self.task.num_outputs,
            generator=torch.Generator().manual_seed(seed_of("weights", self.seed)),
            activation=self.activation,
        )

    def run(self, context: RunContext) -> Row:
        """Errors after every epoch, and exact and epsilon ranks of the trained network."""
        task_data = self.task.task_data(context.data, seed=self.seed, report=context.report)
        network = self.build()
        train, validation = self._parts(task_data.train)
        history = fit(
            network,
            task_data.loss,
            train,
            replace(self.recipe, seed=self.seed),
            folder=context.folder / "training",
            evaluate=lambda model: {"error": task_data.error(model)},
            progress=context.report,
        )
        errors = [record.metrics["error"] for record in history.records]
        seconds = history.seconds
        second: Row = {}
        if self.second_order is not None:
            result = fit_least_squares(
                network,
                train,
                validation,
                self.second_order,
                folder=context.folder / "second-order",
                progress=context.report,
            )
            seconds += result.seconds
            second = {
                "error of Adam": errors[-1],
                "iterations": len(result.errors) - 1,
                "validation errors": list(result.validation_errors),
            }
            errors = [*errors, scores(network, lambda model: {"e": task_data.error(model)})["e"]]
        network.eval()
        return {
            "group": self.group,
            "degree": degree_name(self.degree),
            "layers": len(network.layers),
            "width": network.width,
            "parameters": sum(parameter.numel() for parameter in network.parameters()),
            **self.degrees(network),
            task_data.error_name: errors[-1],
            **second,
            **self.ranks(network, task_data),
            **task_data.facts,
            "seconds": seconds,
            "errors": errors,
        }

    def degrees(self, network: DegreeNetwork) -> Row:
        """The degree of the trained network as a polynomial."""
        return {"total degree": network.polynomial().input_degree}

    def ranks(self, network: DegreeNetwork, task_data: TaskData) -> Row:
        """Exact rank at the trained weights and its bound; epsilon rank on samples of the task."""
        polynomial = network.polynomial()
        return {
            **_exact_rank(polynomial, task_data),
            "epsilon rank": _epsilon_rank(
                lambda batch: polynomial(batch[..., None]), task_data.test.inputs.double()
            ),
        }

    def _parts(self, train: TensorData) -> tuple[TensorData, TensorData]:
        """Samples to train on, and samples for the end of a second-order training."""
        if self.second_order is None:
            return train, train
        count = len(train) - NUM_VALIDATION
        assert train.targets is not None, "functions have values"
        rest = TensorData(train.inputs[count:], train.targets[count:])
        return train.head(count), rest


def degree_name(degree: float) -> str:
    """The name of a degree in the rows.

    Example:
        >>> degree_name(3.0), degree_name(math.e), degree_name(2.5)
        ('3', 'e', '2.5')
    """
    return "e" if degree == math.e else f"{degree:g}"


@dataclass(frozen=True)
class ActivatedEntry(DegreeEntry):
    """The same network with a GELU after every layer: no polynomial, so that no rank is exact."""

    @property
    def group(self) -> str:
        """Task, budget and activation: what is compared."""
        return f"{super().group}-gelu"

    @property
    def activation(self) -> nn.Module:
        """A smooth one: second-order training needs derivatives."""
        return nn.GELU()

    def degrees(self, network: DegreeNetwork) -> Row:
        """Only what it is made with: it has no degree."""
        del network
        return {"activation": "gelu"}

    def ranks(self, network: DegreeNetwork, task_data: TaskData) -> Row:
        """The epsilon rank on samples of the task."""
        model = copy.deepcopy(network).double()
        inputs = task_data.test.inputs.double()
        return {"epsilon rank": _epsilon_rank(lambda batch: model(batch)[:, 0], inputs)}


@dataclass(frozen=True)
class LinearBaseline(BaselineEntry):
    """The best linear function of a task's inputs: least squares, or logistic regression.

    Args:
        task: what is learned; its samples are those of seed 0.
    """

    task: Task

    @property
    def kind(self) -> str:
        """The task and the method."""
        return f"{self.task.name}-linear"

    def score(self, context: RunContext) -> Row:
        """Its error on the test set, by the name that the networks' rows have for it."""
        data = self.task.task_data(context.data, seed=0, report=context.report)
        inputs, targets = data.train.inputs, data.train.targets
        assert targets is not None, "there is something to learn"
        if isinstance(self.task, ImageTask):
            model = fitted_regression(inputs, targets, self.task.num_outputs)
        else:
            model = _least_squares(inputs, targets)
        with torch.no_grad():
            return {data.error_name: data.error(model)}


def _least_squares(inputs: Tensor, targets: Tensor) -> nn.Linear:
    """The affine function of least squared error."""
    ones = torch.ones(len(inputs), 1, dtype=torch.float64)
    design = torch.cat([inputs.double(), ones], dim=1)
    found = torch.linalg.lstsq(design, targets.double()[:, None]).solution[:, 0]
    model = nn.Linear(inputs.shape[1], 1)
    with torch.no_grad():
        model.weight.copy_(found[None, :-1])
        model.bias.copy_(found[-1:])
    return model


def _exact_rank(polynomial: DegreePolynomial, task_data: TaskData) -> Row:
    inputs = task_data.test.inputs.double()
    count = polynomial.num_positions
    measured, partition = polynomial, Partition.left_right(count)
    if count > MOST_MEASURED_INPUTS:
        middle = count // 2
        measured = polynomial.with_fixed_inputs(inputs.mean(dim=0), (middle, middle + 1))
        partition = Partition.left_right(2)
    exact = measure_rank(measured, partition, weights=dict(measured.named_parameters()))
    return {
        "inputs measured": measured.num_positions,
        "separation rank": exact.lower,
        "rank bound": measured.upper_bound(partition).value,
    }


def _epsilon_rank(function: Callable[[Tensor], Tensor], inputs: Tensor) -> int | None:
    """Between the halves of the inputs, within a share of the outputs' root mean square."""
    with torch.no_grad():
        size = float(function(inputs).square().mean().sqrt())
    near = separation_rank(
        function,
        Partition.left_right(inputs.shape[1]),
        inputs=inputs[:_HALVES],
        epsilon=EPSILON * size,
        options=FunctionOptions(),
    )
    return near.upper


SEEDS = 5
DEGREES = (2.0, 3.0, 4.0, math.e)
# Each is out of reach of the degree below the one that represents it, at its own budget.
CUBIC = CertifiedTask(TargetSearch((3,), 16, num_inputs=6, lower_degree=2))
QUARTIC = CertifiedTask(TargetSearch((4,), 16, num_inputs=6, lower_degree=3))
# The longer the search, the larger the error of the lower degree, and the rougher the polynomial.
SMOOTH_NONIC = CertifiedTask(TargetSearch((3, 3), 12, num_inputs=4, lower_degree=8, steps=40))
ROUGH_NONIC = CertifiedTask(TargetSearch((3, 3), 12, num_inputs=4, lower_degree=8))
WAVES = WaveTask()
MNIST = ImageTask("mnist", 28, 4, num_samples=30_000)
DIGITS = ImageTask("digits", 8, 2, num_samples=1_437)
IMAGE_RECIPE = Recipe(
    epochs=8, batch_size=128, learning_rate=5e-3, schedule=Cosine(), clip_norm=1.0
)
# The stopping rules: iterations, or 25 of them without a smaller error on validation samples.
SMALL, LARGE = LeastSquares(max_iterations=200), LeastSquares(max_iterations=60)


@dataclass(frozen=True)
class Comparison:
    """A task and a budget at which all degrees are trained alike.

    Args:
        task: what is learned.
        budget: of every network.
        recipe: of every training.
        second_order: how it goes on; None if it does not.
        is_activated: whether a GELU follows every layer.
        title: for readers.
    """

    task: Task
    budget: Budget
    recipe: Recipe
    second_order: LeastSquares | None = None
    is_activated: bool = False
    title: str = ""

    def entries(self) -> tuple[DegreeEntry, ...]:
        """One for each degree."""
        kind = ActivatedEntry if self.is_activated else DegreeEntry
        return tuple(
            kind(self.task, self.budget, degree, self.recipe, self.second_order)
            for degree in DEGREES
        )

    @property
    def group(self) -> str:
        """Task, budget and activation, as its settings are named."""
        return self.entries()[0].group


# Parameters of the network of the target's own degree and width; the tests count them again.
COMPARISONS: tuple[Comparison, ...] = (
    Comparison(CUBIC, Budget(3, 353), RECIPE, SMALL, title="Cubic polynomial, 3 matrices"),
    Comparison(QUARTIC, Budget(4, 465), RECIPE, SMALL, title="Quartic polynomial, 4 matrices"),
    Comparison(SMOOTH_NONIC, Budget(6, 661), RECIPE, SMALL, title="Degree 9, smooth, 6 matrices"),
    Comparison(ROUGH_NONIC, Budget(6, 661), RECIPE, SMALL, title="Degree 9, rough, 6 matrices"),
    Comparison(WAVES, Budget(6, 1500), RECIPE, LARGE, title="Waves, 6 matrices"),
    Comparison(WAVES, Budget(8, 2000), RECIPE, LARGE, title="Waves, 8 matrices"),
    Comparison(WAVES, Budget(12, 3000), RECIPE, LARGE, title="Waves, 12 matrices"),
    Comparison(MNIST, Budget(12, 15_000), IMAGE_RECIPE, title="MNIST, 12 matrices"),
    # Layers as the source writes them: an activation of a polynomial.
    Comparison(
        WAVES, Budget(6, 1500), RECIPE, LARGE, is_activated=True, title="Waves, 6 matrices, GELU"
    ),
    Comparison(
        WAVES, Budget(12, 3000), RECIPE, LARGE, is_activated=True, title="Waves, 12 matrices, GELU"
    ),
    Comparison(
        MNIST, Budget(12, 15_000), IMAGE_RECIPE, is_activated=True, title="MNIST, 12 matrices, GELU"
    ),
)
_QUICK = Recipe(epochs=6, batch_size=128, learning_rate=1e-2, schedule=Cosine(), clip_norm=1.0)
QUICK: tuple[Comparison, ...] = (
    Comparison(
        CertifiedTask(TargetSearch((3,), 8, num_inputs=4, lower_degree=2, steps=20), 4096),
        Budget(3, 129),
        _QUICK,
        LeastSquares(max_iterations=10),
    ),
    Comparison(WaveTask(num_samples=2048), Budget(6, 700), _QUICK),
    Comparison(WaveTask(num_samples=2048), Budget(6, 700), _QUICK, is_activated=True),
    Comparison(DIGITS, Budget(6, 1500), _QUICK),
)


def _entries(comparisons: Sequence[Comparison]) -> tuple[DegreeEntry, ...]:
    return tuple(entry for one in comparisons for entry in one.entries())


def differences(rows: Sequence[Row]) -> list[Row]:
    """Error of degree 3 minus that of every other degree, seed by seed, for each comparison.

    Negative means that degree 3 is better; a verdict is given only where the 95 % interval lies on
    one side of 0.
    """
    curves = _curves(rows)
    results: list[Row] = []
    for group in dict.fromkeys(group for group, _ in curves):
        row: Row = {"group": group}
        for other in ("2", "4", "e"):
            row[f"3 minus {other}"] = _difference(curves, group, other)
        results.append(row)
    return results


def _curves(rows: Sequence[Row]) -> dict[tuple[str, str], dict[int, list[float]]]:
    """The test errors of each seed, by group and degree."""
    results: dict[tuple[str, str], dict[int, list[float]]] = {}
    for row in rows:
        errors = row.get("errors")
        if isinstance(errors, list) and errors:
            seeds = results.setdefault((str(row["group"]), str(row["degree"])), {})
            seeds[int(str(row.get("seed") or 0))] = errors
    return results


def _difference(
    curves: dict[tuple[str, str], dict[int, list[float]]], group: str, other: str
) -> str | None:
    ours, theirs = curves.get((group, "3"), {}), curves.get((group, other), {})
    values = [ours[seed][-1] - theirs[seed][-1] for seed in ours if seed in theirs]
    if len(values) < 2:
        return None
    interval = Interval.of(values, seeds=len(values))
    verdict = "undecided"
    if abs(interval.mean) > interval.half_width:
        verdict = "better" if interval.mean < 0 else "worse"
    return f"{interval} ({verdict})"


def _score(task: Task) -> Score:
    """What is compared on a task, beside its best linear function."""
    baseline = LinearBaseline(task).name
    if isinstance(task, ImageTask):
        return Score("percent wrong", "points", baseline=baseline)
    return Score("relative error", "of the deviation", baseline=baseline)


_ARGUED = "Decided pairs of different total degrees"


def _claims(comparisons: Sequence[Comparison]) -> Claims:
    """Degree 3 against every other one, with the total degrees that the source's argument counts.

    By that argument the larger total degree is better, which is degree 3 at some budgets only.
    """
    pairs = []
    for one in comparisons:
        score = _score(one.task)
        subject = one.title
        titles = {
            degree: f"{degree_name(degree)} (total {_total_degree(one.budget, degree)})"
            for degree in DEGREES
        }
        if one.is_activated:
            titles = {degree: degree_name(degree) for degree in DEGREES}
        names = {entry.degree: entry.name for entry in one.entries()}
        pairs += [
            Pair(
                f"{subject}: degree {titles[3.0]} against {titles[degree]}",
                names[3.0],
                names[degree],
                score,
                is_claimed_better=_is_larger(one.budget, 3.0, degree),
            )
            for degree in DEGREES
            if degree != 3.0
        ]
    return Claims(
        "Does a degree of 3 make the best use of a budget of matrices?",
        tuple(pairs),
        (_score(MNIST),),
        _as_argued,
        answer=_ARGUED,
        hypothesis="Of networks with as many matrices and parameters the one of the largest total "
        "degree learns best, so one of degree 3 where that is its own (Navon 2021).",
    )


def _total_degree(budget: Budget, degree: float) -> int:
    """Of the polynomial that a network of a degree is; coordinates of degree e reach 3."""
    return int(math.ceil(degree) ** len(budget.degrees(degree)))


def _is_larger(budget: Budget, one: float, other: float) -> bool | None:
    """Whether the first has the larger total degree; None if they are equal."""
    first, second = (_total_degree(budget, degree) for degree in (one, other))
    return None if first == second else first > second


def _as_argued(rows: Sequence[Row]) -> list[Statement]:
    """How many decided pairs go as the total degree says, those of equal ones left out."""
    judged, with_gelu = (
        [
            judge(pair, rows, seeds=SEEDS)
            for pair in _claims([one for one in COMPARISONS if one.is_activated in kinds]).pairs
            if pair.is_claimed_better is not None
        ]
        for kinds in ((True, False), (True,))
    )
    decided = sum(one.verdict is Verdict.DECIDED for one in with_gelu)
    detail = (
        f"{count_as_claimed(judged)} go to the larger total degree; with a GELU after every layer "
        f"{decided} of {len(with_gelu)} pairs are decided"
    )
    return [Statement(_ARGUED, Verdict.FACT, detail)]


BASELINES = tuple(LinearBaseline(task) for task in dict.fromkeys(one.task for one in COMPARISONS))
_DEGREES = {degree_name(degree): degree for degree in DEGREES}


def draw_errors(rows: Sequence[Row]) -> object:
    """Test errors over the degree of a layer, a panel for each comparison."""
    placed = [{**row, "degree of a layer": _DEGREES.get(str(row.get("degree")))} for row in rows]
    return _FIGURE(placed)


_FIGURE = LineFigure(
    "degree of a layer",
    "relative error",
    is_logarithmic=False,
    is_logarithmic_up=True,
    panels=tuple(
        Panel(
            one.title,
            f"{re.escape(one.group)}-degree-[^-]+",
            up=_score(one.task).column,
            baselines=f"{re.escape(one.task.name)}-(linear)",
        )
        for one in COMPARISONS
    ),
)

DEGREE_BUDGET = Experiment(
    name="degree-budget",
    title="Which degree of a layer learns best within a budget? Test errors",
    entries=(*BASELINES, *_entries(COMPARISONS)),
    quick=_entries(QUICK),
    protocol=(
        "Networks whose layers are products of d affine maps (d = 2, 3, 4, or e: 72 % of the "
        "coordinates of a layer are products of three and the others of two), each followed by a "
        "batch normalization without shift, then a linear readout. B matrices buy B / d layers, "
        "rounded down; the width is the largest that keeps all parameters within the same number. "
        "Tasks: polynomials whose certified separation rank exceeds what the next lower degree can "
        "have at that budget, with the error that this degree cannot avoid; a sum of 64 random "
        "plane waves; images averaged over squares. Adam, half a cosine, the same learning rate, "
        "batches, epochs and gradient clipping for all degrees; then, but for images, the method "
        "of Levenberg and Marquardt on the same 14,336 samples, for 200 iterations at most (waves: "
        "60), or until the error on 2,048 further samples has not fallen for 25; the weights of "
        "the least such error are tested. The separation rank is exact, at "
        "the trained weights, between the halves of the inputs; for images, between two "
        "neighbouring squares with all others held at their mean. In groups that end in gelu a "
        "GELU follows every layer, as in the source: no polynomials, so that only the epsilon rank "
        "on samples is measured."
    ),
    needs="MNIST (idx)",
    seeds=SEEDS,
    columns=(
        "relative error",
        "percent wrong",
        "layers",
        "width",
        "total degree",
        "separation rank",
        "epsilon rank",
        "least error of the lower degree",
        "error of Adam",
        "iterations",
    ),
    figure=draw_errors,
    summary=differences,
    claims=_claims(COMPARISONS),
)
