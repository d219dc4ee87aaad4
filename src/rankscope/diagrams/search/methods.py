"""Ways to choose a contraction order, as objects; each says which regions it is for."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from opt_einsum import paths

from rankscope.diagrams.search.exhaustive import MAX_OPERANDS, cheapest_path
from rankscope.diagrams.search.greedy import greedy_path
from rankscope.diagrams.search.problem import Path, Problem
from rankscope.errors import ContractionError, MissingExtraError

# Beyond this, Automatic takes the greedy order for regions with convolutions: still under 0.1 s.
AUTOMATIC_EXHAUSTIVE_OPERANDS = 9


class Method(ABC):
    """A way to choose a contraction order."""

    @abstractmethod
    def path(self, problem: Problem) -> Path:
        """An order for a region of two or more operands.

        Raises:
            ContractionError: if the method cannot treat the region, or finds no order.
        """


@dataclass(frozen=True)
class Automatic(Method):
    """opt_einsum's "auto"; with convolutions, our own search: exhaustive up to 9 operands.

    opt_einsum's is optimal up to four operands, then branches less and less, and is greedy
    beyond fourteen.
    """

    def path(self, problem: Problem) -> Path:
        if not problem.convolutions:
            return _library_path(paths.auto, problem)
        if len(problem.operands) <= AUTOMATIC_EXHAUSTIVE_OPERANDS:
            return Exhaustive().path(problem)
        return Greedy().path(problem)


AUTOMATIC = Automatic()


@dataclass(frozen=True)
class Exhaustive(Method):
    """The fewest operations over all orders, for at most twelve operands."""

    def path(self, problem: Problem) -> Path:
        count = len(problem.operands)
        if count > MAX_OPERANDS:
            raise ContractionError(
                f"Exhaustive() looks at every order of up to {MAX_OPERANDS} operands, "
                f"but this region has {count}; use Automatic() or Greedy()."
            )
        found = cheapest_path(problem)
        if found is None:
            raise ContractionError(
                f"No order of these {count} operands and {len(problem.convolutions)} convolutions "
                "can be carried out: each pair that meets must have all inputs on one side and all "
                "kernels on the other, and at most three convolutions."
            )
        return found


@dataclass(frozen=True)
class Greedy(Method):
    """opt_einsum's "greedy", and a greedy search of our own for regions with convolutions."""

    def path(self, problem: Problem) -> Path:
        if not problem.convolutions:
            return _library_path(paths.greedy, problem)
        found = greedy_path(problem)
        if found is None:
            raise ContractionError(
                f"Greedy() found no order of {len(problem.operands)} operands and "
                f"{len(problem.convolutions)} convolutions that can be carried out; "
                f"try Exhaustive() (up to {MAX_OPERANDS} operands)."
            )
        return found


@dataclass(frozen=True)
class InOrder(Method):
    """No search: the operands one after the other, as a chain of layers is carried out.

    Args:
        is_backward: start with the last operand instead of the first.
    """

    is_backward: bool = False

    def path(self, problem: Problem) -> Path:
        last = len(problem.operands) - 1
        # What has been multiplied so far stands at the end of the list.
        if self.is_backward:
            return tuple((place - 1, place) for place in range(last, 0, -1))
        return ((0, 1), *((0, place) for place in range(last - 1, 0, -1)))


IN_ORDER = InOrder()


@dataclass(frozen=True)
class Cotengra(Method):
    """cotengra's random greedy orders, the best of which is improved piece by piece.

    For large regions without convolutions. Everything follows from the seed, so that a plan is
    the same on every machine.
    """

    repeats: int = 128
    seed: int = 0

    def path(self, problem: Problem) -> Path:
        if problem.convolutions:
            raise ContractionError(
                f"Cotengra() knows no convolutions, and this region has "
                f"{len(problem.convolutions)}; use Automatic(), Exhaustive() or Greedy()."
            )
        try:
            import cotengra
        except ImportError as error:
            raise MissingExtraError(what="Cotengra()", package="cotengra", extra="paths") from error
        optimizer = cotengra.RandomGreedyOptimizer(
            max_repeats=self.repeats, seed=self.seed, accel=False, parallel=False
        )
        operands = [tuple(dict.fromkeys(operand)) for operand in problem.operands]
        tree = optimizer.search(operands, problem.output, dict(enumerate(problem.sizes)))
        tree.subtree_reconfigure_(subtree_size=8, minimize="flops", seed=self.seed)
        return tuple(tuple(sorted(positions)) for positions in tree.get_path())


Search = Callable[[list[frozenset[int]], frozenset[int], dict[int, int]], list[tuple[int, ...]]]


def _library_path(search: Search, problem: Problem) -> Path:
    # Integers instead of letters: no limit of 52, and their hashes never change between runs.
    found = search(
        [frozenset(operand) for operand in problem.operands],
        frozenset(problem.output),
        dict(enumerate(problem.sizes)),
    )
    return tuple(tuple(sorted(positions)) for positions in found)


@lru_cache(maxsize=1024)
def find_path(problem: Problem, method: Method) -> Path:
    """The order a method chooses; equal regions, as in the layers of a deep model, only once.

    One operand needs a move only if something is summed, taken on the diagonal or moved.

    Raises:
        ContractionError: if the method cannot treat the region, or finds no order.
    """
    if len(problem.operands) > 1:
        return method.path(problem)
    return () if problem.operands[0] == problem.output else ((0,),)
