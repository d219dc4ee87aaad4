"""The largest ranks that a number of parameters allows."""

from collections.abc import Callable, Iterator

from rankscope.layers.formats.format import Ranks


def largest_balanced_ranks(
    count: Callable[[Ranks], int],
    limits: Ranks,
    num_parameters: int,
    *,
    is_useful: Callable[[Ranks], bool] = lambda _: True,
) -> Ranks | None:
    """Ranks as equal as possible, none of which could be one larger; None if ones are too many.

    Args:
        count: parameters at given ranks, growing with each of them.
        limits: the largest useful rank of each kind.
        num_parameters: not to be exceeded.
        is_useful: whether a rank is not larger than the others leave any use for.

    Example:
        >>> largest_balanced_ranks(lambda ranks: 10 * sum(ranks), (2, 9), 70)
        (2, 5)
    """
    if count((1,) * len(limits)) > num_parameters:
        return None
    low, high = 1, max(limits)
    while low < high:
        middle = (low + high + 1) // 2
        if count(_capped(middle, limits)) <= num_parameters:
            low = middle
        else:
            high = middle - 1
    ranks = _capped(low, limits)
    while True:
        fitting = (
            larger
            for larger in _one_more(ranks, limits)
            if count(larger) <= num_parameters and is_useful(larger)
        )
        found = next(fitting, None)
        if found is None:
            return ranks
        ranks = found


def _capped(rank: int, limits: Ranks) -> Ranks:
    return tuple(min(rank, limit) for limit in limits)


def _one_more(ranks: Ranks, limits: Ranks) -> Iterator[Ranks]:
    """One added to a rank, the smallest first."""
    for rank, place in sorted((rank, place) for place, rank in enumerate(ranks)):
        if rank < limits[place]:
            yield (*ranks[:place], rank + 1, *ranks[place + 1 :])
