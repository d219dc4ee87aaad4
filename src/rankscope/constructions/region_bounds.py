"""How many affine regions a ReLU network can have."""

import math
from collections.abc import Sequence

from rankscope.errors import ConstructionError
from rankscope.theorem import LowerBound, Magnitude, Status, Theorem, UpperBound

QUANTITY = "affine regions"
ZASLAVSKY = Theorem(
    "Zaslavsky (1975)",
    "regions of an arrangement of hyperplanes",
    None,
    ("one hidden layer", "all weights; attained in general position"),
)
PRODUCT = Theorem(
    "Montúfar (2017)",
    "Proposition 3",
    None,
    ("ReLU", "all weights"),
    Status.RECALLED,
)
MONTUFAR = Theorem(
    "Montúfar, Pascanu, Cho & Bengio (2014)",
    "Theorem 4",
    "1402.1869",
    ("ReLU", "every hidden layer is at least as wide as the input", "the best weights"),
    Status.RECALLED,
)


def zaslavsky_upper_bound(*, num_inputs: int, width: int) -> UpperBound:
    r"""Most regions of one hidden layer; hyperplanes in general position have as many.

    .. math:: \sum_{j=0}^{d} \binom{n}{j}

    Example:
        >>> zaslavsky_upper_bound(num_inputs=2, width=4).value
        11

    Raises:
        ConstructionError: if a size is not positive.

    Reference:
        Zaslavsky (1975), "Facing up to arrangements", Memoirs of the AMS 154.
    """
    _require_sizes("zaslavsky_upper_bound", num_inputs, [width])
    return UpperBound(Magnitude.of(_arrangement(num_inputs, width)), ZASLAVSKY, QUANTITY)


def product_upper_bound(*, num_inputs: int, widths: Sequence[int]) -> UpperBound:
    r"""Most regions of a deep network.

    .. math:: \prod_{l=1}^{L} \sum_{j=0}^{m_l} \binom{n_l}{j}, \qquad
              m_l = \min(n_0, \dots, n_{l-1})

    A region of the first l - 1 layers is mapped into an affine space of dimension m_l at most,
    which layer l cuts by n_l hyperplanes.

    Example:
        >>> product_upper_bound(num_inputs=2, widths=[4, 4, 4]).value
        1331

    Raises:
        ConstructionError: if a size is not positive.

    Reference:
        Montúfar (2017), "Notes on the number of linear regions of deep neural networks", Prop. 3.
    """
    _require_sizes("product_upper_bound", num_inputs, widths)
    total, dimension = 1, num_inputs
    for width in widths:
        total *= _arrangement(dimension, width)
        dimension = min(dimension, width)
    return UpperBound(Magnitude.of(total), PRODUCT, QUANTITY)


def montufar_lower_bound(*, num_inputs: int, widths: Sequence[int]) -> LowerBound:
    r"""Regions that some network of the architecture has; `montufar_network` builds it.

    .. math:: \Bigl(\prod_{l=1}^{L-1} \lfloor n_l / n_0 \rfloor^{n_0}\Bigr)
              \sum_{j=0}^{n_0} \binom{n_L}{j}

    Example:
        >>> montufar_lower_bound(num_inputs=2, widths=[8, 8, 8]).value
        9472

    Raises:
        ConstructionError: if a size is not positive or a layer is narrower than the input.

    Reference:
        Montúfar, Pascanu, Cho & Bengio (2014), Theorem 4, arXiv:1402.1869.
    """
    _require_sizes("montufar_lower_bound", num_inputs, widths)
    require_wide("montufar_lower_bound", num_inputs, widths)
    folds = math.prod((width // num_inputs) ** num_inputs for width in widths[:-1])
    regions = folds * _arrangement(num_inputs, widths[-1])
    return LowerBound(Magnitude.of(regions), MONTUFAR, QUANTITY)


def require_wide(who: str, num_inputs: int, widths: Sequence[int]) -> None:
    """Refuse layers that are narrower than the input.

    Raises:
        ConstructionError: if there is one.
    """
    for place, width in enumerate(widths, start=1):
        if width < num_inputs:
            raise ConstructionError(
                f"{who}: hidden layer {place} has {width} units, fewer than the {num_inputs} "
                "inputs."
            )


def _arrangement(dimension: int, width: int) -> int:
    return sum(math.comb(width, chosen) for chosen in range(dimension + 1))


def _require_sizes(who: str, num_inputs: int, widths: Sequence[int]) -> None:
    if num_inputs < 1 or not widths or min(widths) < 1:
        raise ConstructionError(
            f"{who} needs at least one input and hidden layers of at least one unit, got "
            f"{num_inputs} inputs and widths {list(widths)}."
        )
