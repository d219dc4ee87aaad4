"""Right-hand sides that nobody can choose: a cheap proof that a large matrix is not singular.

Whoever claims that an n x n matrix A is not singular modulo p is given a random b and must answer
with x such that A x = b. If A is singular its image lies in a hyperplane u · b = 0, which a random
b hits with probability at most 1/p; c independent challenges are all answerable with probability
at most p^-c. The verifier needs n^2 values and no elimination.

Nobody is there to ask, so b is a hash of the whole statement: the matrix is fixed before the
challenge is known. A cheat can only change the statement (another seed, other rows) and look
again; p^c >= 2^100 makes that hopeless (Fiat & Shamir, 1986).
"""

import hashlib
import math

import numpy
from numpy.typing import NDArray

SECURITY_BITS = 100
_WORDS_EACH = 2  # 128 random bits for a residue below 2^31: even up to 2^-97


def num_challenges(prime: int) -> int:
    """The least c with p^c >= 2^100.

    Example:
        >>> num_challenges(16777213), num_challenges(2)
        (5, 100)
    """
    count = 1
    while prime**count < 2**SECURITY_BITS:
        count += 1
    return count


def soundness_log2(prime: int) -> float:
    """Logarithm to the base 2 of the probability that a false claim passes, for one try.

    All minors of a certificate must pass; if one of them is singular, its own challenges stop it.

    Example:
        >>> soundness_log2(2)
        -100.0
    """
    return -num_challenges(prime) * math.log2(prime)


def draw_challenges(binding: bytes, minor: int, size: int, prime: int) -> NDArray[numpy.int64]:
    """The right-hand sides (size, num_challenges) of a minor, by SHAKE-256.

    Args:
        binding: everything the certificate states, so that b depends on all of it.
        minor: the number of the minor in the certificate.
        size: of the minor.
        prime: below 2^31.

    Example:
        >>> draw_challenges(b"statement", 0, 3, 101).shape
        (3, 16)
    """
    columns = []
    for number in range(num_challenges(prime)):
        label = f"rankscope challenge {minor} {number} of {size} modulo {prime}\n".encode()
        stream = hashlib.shake_256(label + binding).digest(8 * _WORDS_EACH * size)
        high, low = numpy.frombuffer(stream, dtype="<u8").reshape(size, 2).T % numpy.uint64(prime)
        columns.append((high * numpy.uint64(2**64 % prime) + low) % numpy.uint64(prime))
    return numpy.stack(columns, axis=1).astype(numpy.int64)
