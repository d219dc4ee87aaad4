"""Random residues that anyone can draw again, on any machine and with any library version."""

import hashlib
import math

import numpy
from numpy.typing import NDArray

_BYTES_EACH = 8


def draw_residues(
    seed: int, label: str, shape: tuple[int, ...], prime: int
) -> NDArray[numpy.int64]:
    """Draw integers in 0..p-1 from the seed, a label and the prime, by SHAKE-256.

    Each is a 64-bit word modulo p, so its distribution is even up to p / 2^64. Every prime has
    words of its own: residues of one word modulo several primes would not be independent, and the
    failure probabilities of measurements modulo different primes could not be multiplied.

    Example:
        >>> draw_residues(0, "weights/core", (2, 3), 101).shape
        (2, 3)
    """
    count = math.prod(shape)
    text = f"rankscope {seed} {prime} {label}".encode()
    words = numpy.frombuffer(hashlib.shake_256(text).digest(_BYTES_EACH * count), dtype="<u8")
    return numpy.asarray(words % numpy.uint64(prime)).astype(numpy.int64).reshape(shape)
