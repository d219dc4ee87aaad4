"""Floating-point weights as residues, without rounding.

A float is an integer times a power of two, and two has an inverse modulo every odd prime: the
residue stands for exactly that number. So a rank modulo the prime is a lower bound of the rank of
the very network that was trained.
"""

import hashlib
from collections.abc import Mapping

import numpy
from numpy.typing import NDArray
from torch import Tensor

from rankscope.errors import MeasurementError, PrimeError
from rankscope.rank.measured import Residues
from rankscope.rank.networks.network import PolynomialNetwork

_FRACTION_BITS = 53


def weight_residues(weights: Mapping[str, Tensor], prime: int) -> dict[str, Residues]:
    """Map weights of any real type to residues exactly.

    Example:
        >>> from torch import tensor
        >>> weight_residues({"scale": tensor([0.5, -3.0])}, 7)["scale"].tolist()
        [4, 4]

    Raises:
        MeasurementError: if a weight is complex, infinite or not a number.
        PrimeError: if the prime is 2, modulo which there is no half.
    """
    if prime == 2:
        raise PrimeError("Weights with binary fractions need an odd prime, got 2. Use 16777213.")
    return {name: _residues(name, tensor, prime) for name, tensor in weights.items()}


def require_weights_of(network: PolynomialNetwork, weights: Mapping[str, Tensor]) -> None:
    """Refuse weights that are not those of a network, by name and shape.

    Raises:
        MeasurementError: if they are not.
    """
    wanted = {name: tuple(parameter.shape) for name, parameter in network.named_parameters()}
    given = {name: tuple(tensor.shape) for name, tensor in weights.items()}
    differing = sorted(name for name in {*wanted, *given} if wanted.get(name) != given.get(name))
    if differing:
        name = differing[0]
        raise MeasurementError(
            f"{type(network).__name__} wants {name} of shape {wanted.get(name)}, got "
            f"{given.get(name)}. Give dict(network.named_parameters()) of a network of its sizes."
        )


def digest(weights: Mapping[str, Tensor]) -> str:
    """A hash that tells these weights from all others."""
    state = hashlib.sha256()
    for name in sorted(weights):
        array = _array(weights[name])
        state.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        state.update(array.tobytes())
    return state.hexdigest()


def _array(tensor: Tensor) -> NDArray[numpy.generic]:
    plain = tensor.detach().cpu()
    # Every float format of torch is a part of float64; NumPy does not know all of them.
    array: NDArray[numpy.generic] = (plain.double() if plain.is_floating_point() else plain).numpy()
    return array


def _residues(name: str, tensor: Tensor, prime: int) -> Residues:
    if tensor.is_complex():
        raise MeasurementError(
            f"Exact measurement needs real weights, {name} is {tensor.dtype}. "
            f"Use the numeric mode, separation_rank(function, …)."
        )
    array = _array(tensor)
    if array.dtype.kind != "f":
        return numpy.remainder(array.astype(numpy.int64), prime)
    bad = int(array.size - numpy.isfinite(array).sum())
    if bad:
        raise MeasurementError(
            f"Exact measurement needs finite weights, {name} has {bad} of {array.size} that are "
            f"infinite or not a number."
        )
    fractions, exponents = numpy.frexp(array)
    integers = numpy.ldexp(fractions, _FRACTION_BITS).astype(numpy.int64)
    values, places = numpy.unique(exponents, return_inverse=True)
    powers = numpy.array([pow(2, int(e) - _FRACTION_BITS, prime) for e in values], numpy.int64)
    scales = powers[places.reshape(array.shape)]
    residues: Residues = numpy.remainder(integers, prime) * scales % prime
    return residues
