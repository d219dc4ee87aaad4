"""Where descents begin: at random, or at factors found for another number of components."""

import numpy

from rankscope.decompositions.factors import Factors, Reals, component_norms, compose


def random_start(
    shape: tuple[int, ...], num_components: int, generator: numpy.random.Generator
) -> Factors:
    """Gaussian factors of a tensor of Frobenius norm 1."""
    factors = tuple(generator.standard_normal((size, num_components)) for size in shape)
    return _scaled(factors, 1 / float(numpy.linalg.norm(compose(factors))))


def resize(
    tensor: Reals, factors: Factors, num_components: int, generator: numpy.random.Generator
) -> Factors:
    """Drop the smallest components, or add random ones as large as what is still missing."""
    missing = num_components - factors[0].shape[1]
    if missing <= 0:
        kept = numpy.argsort(component_norms(factors))[-missing:]
        return tuple(factor[:, kept] for factor in factors)
    residual = float(numpy.linalg.norm(compose(factors) - tensor))
    added = _scaled(random_start(tensor.shape, missing, generator), residual)
    return tuple(numpy.hstack(pair) for pair in zip(factors, added, strict=True))


def _scaled(factors: Factors, scale: float) -> Factors:
    share = scale ** (1 / len(factors))
    return tuple(factor * share for factor in factors)
