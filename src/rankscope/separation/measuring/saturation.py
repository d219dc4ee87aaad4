"""When a sample is large enough for its rank to be believed."""

from dataclasses import dataclass

from rankscope.separation.measuring.memory import Shape

_FIRST_SIZE = 64
_JUMP = 3  # a target that is at most so many times larger is reached in one step
_SPARE_SAMPLES = 8


@dataclass(frozen=True)
class Saturation:
    """How the sample of one matrix grows, and when it may stop.

    Sample points drawn at random without end are enough as soon as there are more of them on
    each side than the rank. Of finitely many templates a part proves nothing: they are
    exhausted. Both stop where the rank meets a proved upper bound on a sample that is a little
    larger, so that every measurement would show a bound that is wrong.

    Args:
        num_points: how many points each side has, None without end.
        upper: a proved bound of the rank, or None.
    """

    num_points: tuple[int | None, int | None]
    upper: int | None

    @property
    def bound(self) -> int | None:
        """The best upper bound: the proved one, or the points of a side."""
        known = [number for number in (*self.num_points, self.upper) if number is not None]
        return min(known, default=None)

    @property
    def first_size(self) -> int:
        """How many points to begin with."""
        return _FIRST_SIZE if self._test_size is None else min(_FIRST_SIZE, self._test_size)

    def shape(self, size: int) -> Shape:
        """Rows and columns of a sample of this size, if there are so many."""
        rows, columns = self.num_points
        return (
            size if rows is None else min(size, rows),
            size if columns is None else min(size, columns),
        )

    def is_enough(self, size: int, matrix_rank: int) -> bool:
        """Whether a sample of this size with this rank settles it."""
        if self.bound is not None and matrix_rank >= self.bound:
            return matrix_rank > self.bound or size >= self.final_size(0)
        taken = self.shape(size)
        return all(
            count > matrix_rank if most is None else count == most
            for count, most in zip(taken, self.num_points, strict=True)
        )

    def next_size(self, size: int) -> int:
        """The size after one that was not enough."""
        target = self._test_size
        if target is None or size >= target:
            target = max((most for most in self.num_points if most is not None), default=None)
        return target if target is not None and size < target <= _JUMP * size else 2 * size

    def final_size(self, size: int) -> int:
        """The size that is to be expected in the end, as far as anyone knows."""
        return size if self._test_size is None else max(size, self._test_size)

    def size_to_confirm(self, size: int, matrix_rank: int) -> int:
        """A size that was enough for this rank modulo one prime, and will be modulo another."""
        return size if self.num_points != (None, None) else matrix_rank + _SPARE_SAMPLES

    @property
    def _test_size(self) -> int | None:
        """A size at which a rank above the bound would be seen."""
        return None if self.bound is None else self.bound + _SPARE_SAMPLES
