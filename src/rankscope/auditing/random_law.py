r"""The singular values that chance alone would give a matrix, or a product of two."""

import math

import numpy
from numpy.typing import NDArray

_NUM_CELLS = 4096


class RandomLaw:
    r"""Law of the squared singular values of A, or of A B, with independent random entries.

    The squares are in units of their mean. A of size :math:`n_0 \times n_1` has one ratio
    :math:`c = \min / \max`; A B with :math:`n_0 \times n_1` and :math:`n_1 \times n_2` has two,
    :math:`c_i = \min / n_i` for the two larger sizes, in any order. Large matrices follow the law

    .. math:: x = \frac{(1 + z)(1 + c_1 z)(1 + c_2 z)}{z}, \qquad
              \rho(x) = \frac{|\operatorname{Im} z|}{\pi x},

    which for :math:`c_2 = 0` is that of Marchenko and Pastur. On the curve
    :math:`z = e^{i\varphi} / u`, x is real exactly if
    :math:`u^3 = (c_1 + c_2 + c_1 c_2) u + 2 c_1 c_2 \cos\varphi`, which is how it is drawn here.

    Args:
        sizes: rows and columns; of a product the three sizes of its chain.

    Example:
        >>> round(RandomLaw(100, 400).edge, 12)  # (1 + sqrt(1 / 4))², in units of the mean square
        2.25

    Reference:
        Marchenko & Pastur (1967), Math. USSR Sbornik 1, 457-483; Müller (2002), "On the asymptotic
        eigenvalue distribution of concatenated vector-valued fading channels", IEEE Trans. Inf.
        Theory 48, 2086-2091 (products, by the S-transform; as recalled).
    """

    def __init__(self, *sizes: int) -> None:
        smallest, *larger = sorted(sizes)
        first, second = (*(smallest / size for size in larger), 0.0)[:2]
        self._sum = first + second + first * second
        self._product = first * second
        self._start = 1 + first + second

    @property
    def edge(self) -> float:
        """The largest possible square, in units of the mean square."""
        return float(self._squares(numpy.zeros(1))[0])

    def cumulative(self, squares: NDArray[numpy.float64]) -> NDArray[numpy.float64]:
        """Share of the law below each of these squares, given in units of the mean square."""
        # Equal angles crowd where the law is steep: at zero, for square matrices.
        angles = numpy.linspace(math.pi, 0.0, _NUM_CELLS + 1)
        middles = (angles[1:] + angles[:-1]) / 2
        places, centres = self._squares(angles), self._squares(middles)
        density = numpy.sin(middles) / (math.pi * self._inverse(middles) * centres)
        reached = numpy.concatenate([[0.0], numpy.cumsum(density * numpy.diff(places))])
        found: NDArray[numpy.float64] = numpy.interp(squares, places, reached / reached[-1])
        return found

    def _inverse(self, angles: NDArray[numpy.float64]) -> NDArray[numpy.float64]:
        """The largest root u of the cubic, 1 / |z|; it has three real ones."""
        radius = math.sqrt(self._sum / 3)
        inner = numpy.clip(self._product * numpy.cos(angles) / radius**3, -1.0, 1.0)
        found: NDArray[numpy.float64] = 2 * radius * numpy.cos(numpy.arccos(inner) / 3)
        return found

    def _squares(self, angles: NDArray[numpy.float64]) -> NDArray[numpy.float64]:
        u = self._inverse(angles)
        return numpy.maximum(
            self._start
            + (u + self._sum / u) * numpy.cos(angles)
            + self._product / u**2 * numpy.cos(2 * angles),
            0.0,
        )
