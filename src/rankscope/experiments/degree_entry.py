"""One row of `degree-budget`: a network of one degree within a budget, trained and measured."""

import math
from dataclasses import dataclass, replace

import torch

from rankscope.architectures.degree.degree_network import DegreeNetwork, widest_network
from rankscope.architectures.degree.degree_polynomial import DegreePolynomial
from rankscope.architectures.measuring import measure_rank
from rankscope.experiments.degree_tasks import Lesson, Task
from rankscope.experiments.experiment import Entry, Row, Workplace
from rankscope.seeds import seed_of
from rankscope.separation.function_rank import separation_rank
from rankscope.separation.pairing import FunctionOptions
from rankscope.separation.partition import Partition
from rankscope.training.loop import fit
from rankscope.training.recipe import Cosine, Recipe

RECIPE = Recipe(epochs=12, batch_size=128, learning_rate=1e-2, schedule=Cosine(), clip_norm=1.0)
# Exact ranks in more inputs than this are out of reach at these degrees: the others are held fixed.
MOST_MEASURED_INPUTS = 6
EPSILON = 0.01  # of the root mean square of the output
_HALVES = 256  # samples that are paired for the epsilon rank


@dataclass(frozen=True)
class Budget:
    """How much a network may hold.

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
        seed: of the first weights, of the samples and of their order.
    """

    task: Task
    budget: Budget
    degree: float
    recipe: Recipe = RECIPE
    seed: int = 0

    @property
    def name(self) -> str:
        """Task, budget and degree."""
        return f"{self.group}-degree-{degree_name(self.degree)}"

    @property
    def group(self) -> str:
        """Task and budget: what is compared."""
        return f"{self.task.name}-{self.budget.matrices}-matrices"

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
        )

    def run(self, place: Workplace) -> Row:
        """Errors after every epoch, and exact and epsilon ranks of the trained network."""
        lesson = self.task.lesson(place.data, seed=self.seed, report=place.report)
        network = self.build()
        history = fit(
            network,
            lesson.loss,
            lesson.train,
            replace(self.recipe, seed=self.seed),
            folder=place.folder / "training",
            evaluate=lambda model: {"error": lesson.error(model)},
            progress=place.report,
        )
        network.eval()
        errors = [record.metrics["error"] for record in history.records]
        polynomial = network.polynomial()
        return {
            "group": self.group,
            "degree": degree_name(self.degree),
            "layers": len(network.layers),
            "width": network.width,
            "parameters": sum(parameter.numel() for parameter in network.parameters()),
            "total degree": polynomial.input_degree,
            lesson.error_name: errors[-1],
            **_ranks(polynomial, lesson),
            **lesson.facts,
            "seconds": history.seconds,
            "errors": errors,
        }


def degree_name(degree: float) -> str:
    """As rows say it.

    Example:
        >>> degree_name(3.0), degree_name(math.e), degree_name(2.5)
        ('3', 'e', '2.5')
    """
    return "e" if degree == math.e else f"{degree:g}"


def _ranks(polynomial: DegreePolynomial, lesson: Lesson) -> Row:
    """Exact rank at the trained weights and its bound; epsilon rank on samples of the task."""
    inputs = lesson.test.inputs.double()
    count = polynomial.num_positions
    halves = Partition.left_right(count)
    values = polynomial(inputs[..., None]).detach()
    near = separation_rank(
        lambda batch: polynomial(batch[..., None]),
        halves,
        inputs=inputs[:_HALVES],
        epsilon=EPSILON * float(values.square().mean().sqrt()),
        options=FunctionOptions(),
    )
    measured, partition = polynomial, halves
    if count > MOST_MEASURED_INPUTS:
        middle = count // 2
        measured = polynomial.with_fixed_inputs(inputs.mean(dim=0), (middle, middle + 1))
        partition = Partition.left_right(2)
    exact = measure_rank(measured, partition, weights=dict(measured.named_parameters()))
    return {
        "inputs measured": measured.num_positions,
        "separation rank": exact.lower,
        "rank bound": measured.upper_bound(partition).value,
        "epsilon rank": near.upper,
    }
