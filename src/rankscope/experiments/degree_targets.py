"""Polynomials that one degree can represent and the next lower one cannot even come near.

A target is a network of its degree, so that a network of that degree and width represents it. Its
separation rank, certified at its own weights, exceeds what any network of the lower degree can
have; and by Eckart and Young the singular values beyond that rank are an error which no such
network can avoid.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from rankscope.architectures.certification import certify_rank, verify
from rankscope.architectures.degree.degree_polynomial import DegreePolynomial
from rankscope.architectures.measuring import measure_rank
from rankscope.bounds.total_degree import total_degree_upper_bound
from rankscope.errors import ExperimentError
from rankscope.separation.measuring.progress import Progress, Report, ignore
from rankscope.separation.nearby.measures import Uniform
from rankscope.separation.partition import Partition
from rankscope.training.batches import seed_of

_RATE = 0.03


@dataclass(frozen=True, eq=False)
class CertifiedTarget:
    """A polynomial with what is proved of it.

    Args:
        network: of mean square 1 on inputs uniform in [-1, 1].
        rank: its separation rank between the first and the second half of its inputs, at least.
        lower_rank: the largest one that a polynomial of the lower degree can have.
        least_error: the root mean square error of every function of that rank, at least, up to the
            rounding of float64.
    """

    network: DegreePolynomial
    rank: int
    lower_rank: int
    least_error: float

    def __call__(self, inputs: Tensor) -> Tensor:
        """Values (batch,) of inputs (batch, num_inputs)."""
        with torch.no_grad():
            values: Tensor = self.network(inputs.double()[..., None])
        return values.to(inputs)


@dataclass(frozen=True)
class TargetSearch:
    """Which target to look for: the one with the largest least error that some steps find.

    Args:
        degrees: of its layers.
        width: of its layers.
        num_inputs: half of them on each side.
        lower_degree: the total degree of the networks that shall fail.
        steps: of Adam on the share of the mean square that lies beyond their rank.
        seed: of its first weights.

    Raises:
        ExperimentError: if the inputs have no two halves.
    """

    degrees: tuple[int, ...]
    width: int
    num_inputs: int
    lower_degree: int
    steps: int = 150
    seed: int = 0

    def __post_init__(self) -> None:
        if self.num_inputs < 2 or self.num_inputs % 2:
            raise ExperimentError(
                f"TargetSearch: wanted an even number of inputs, got {self.num_inputs}."
            )

    @property
    def partition(self) -> Partition:
        """First against second half of the inputs."""
        return Partition.left_right(self.num_inputs)

    @property
    def lower_rank(self) -> int:
        """No polynomial of the lower degree has a larger separation rank."""
        left, right = len(self.partition.left), len(self.partition.right)
        bound = total_degree_upper_bound(
            num_left=left, num_right=right, degree=self.lower_degree
        ).value
        assert bound is not None, "the degrees of experiments are small"
        return bound

    def find(self, report: Report = ignore) -> CertifiedTarget:
        """Search, certify, and check the certificate.

        Raises:
            ExperimentError: if the rank that is proved does not exceed the lower one.
        """
        network = self._searched(report)
        weights = dict(network.named_parameters())
        measured = measure_rank(network, self.partition, weights=weights)
        verdict = verify(certify_rank(network, self.partition, measured, weights=weights))
        if not verdict.is_proved or verdict.lower <= self.lower_rank:
            raise ExperimentError(
                f"TargetSearch: wanted a target of rank above {self.lower_rank}, proved "
                f"{verdict.lower}. Use a higher degree or another seed than {self.seed}."
            )
        with torch.no_grad():
            values = torch.linalg.svdvals(self._kernel(network))
        least = math.sqrt(float(values[self.lower_rank :].square().sum()))
        return CertifiedTarget(network, verdict.lower, self.lower_rank, least)

    def _searched(self, report: Report) -> DegreePolynomial:
        generator = torch.Generator().manual_seed(seed_of("target", self.seed))
        network = DegreePolynomial(
            num_inputs=self.num_inputs,
            width=self.width,
            degrees=self.degrees,
            generator=generator,
        ).double()
        optimizer = torch.optim.Adam(network.parameters(), lr=_RATE)
        for step in range(self.steps):
            squares = torch.linalg.svdvals(self._kernel(network)).square()
            share = squares[self.lower_rank :].sum() / squares.sum()
            optimizer.zero_grad()
            torch.autograd.backward(-share.log())
            optimizer.step()
            report(Progress("searching a target", step + 1, self.steps))
        with torch.no_grad():
            scale = self._kernel(network).square().sum().sqrt()
            network.readout.div_(scale)
            network.constant.div_(scale)
        return network

    def _kernel(self, network: DegreePolynomial) -> Tensor:
        """Values on all pairs of Gauss points, by the roots of their weights.

        With one node more than the degree its singular values are those of the polynomial.
        """
        nodes, weights = (
            torch.from_numpy(array) for array in Uniform().rule(network.input_degree + 1)
        )
        half = self.num_inputs // 2
        points = torch.cartesian_prod(*[nodes] * half).reshape(-1, half)
        roots = torch.cartesian_prod(*[weights] * half).reshape(-1, half).prod(dim=1).sqrt()
        count = len(points)
        pairs = torch.cat([points.repeat_interleave(count, dim=0), points.repeat(count, 1)], dim=1)
        values: Tensor = network(pairs[..., None])
        return roots[:, None] * values.reshape(count, count) * roots
