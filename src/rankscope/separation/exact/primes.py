"""Prime numbers, recognised with certainty."""

from rankscope.errors import PrimeError

# No composite below 3,317,044,064,679,887,385,961,981 passes the test for all of these bases,
# which is far beyond 2^64.
_BASES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41)
_LIMIT = 2**64


def is_prime(number: int) -> bool:
    """Decide whether a number below 2^64 is prime, by the Miller-Rabin test on proven bases.

    Example:
        >>> is_prime(16777213), is_prime(2**32 + 1)
        (True, False)

    Raises:
        PrimeError: if the number is 2^64 or more, where these bases prove nothing.

    Reference:
        Sorenson & Webster (2017), Strong pseudoprimes to twelve prime bases, arXiv:1509.00864.
    """
    if number >= _LIMIT:
        raise PrimeError(f"is_prime decides numbers below 2^64 = {_LIMIT}, got {number}.")
    if number < 2:
        return False
    for base in _BASES:
        if number % base == 0:
            return number == base
    twos = ((number - 1) & (1 - number)).bit_length() - 1
    return all(_passes(number, base, twos) for base in _BASES)


def _passes(number: int, base: int, twos: int) -> bool:
    """Whether `base` fails to prove that `number`, with number - 1 = odd · 2^twos, is composite."""
    power = pow(base, (number - 1) >> twos, number)
    if power in (1, number - 1):
        return True
    for _ in range(twos - 1):
        power = power * power % number
        if power == number - 1:
            return True
    return False


def largest_prime_below(limit: int) -> int:
    """Find the largest prime that is less than `limit`.

    Example:
        >>> largest_prime_below(2**24), largest_prime_below(2**31)
        (16777213, 2147483647)

    Raises:
        PrimeError: if there is none, or `limit` is above 2^64.
    """
    if limit <= 2 or limit > _LIMIT:
        raise PrimeError(f"largest_prime_below: the limit must lie in 3..2^64, got {limit}.")
    return next(number for number in range(limit - 1, 1, -1) if is_prime(number))


def require_prime(number: int, *, below: int, who: str) -> int:
    """Return a prime below a limit as it is; refuse everything else.

    Raises:
        PrimeError: if the number is not a prime or not below the limit.
    """
    if number >= below:
        raise PrimeError(
            f"{who}: the prime must be below {below}, got {number}. "
            f"The largest one is {largest_prime_below(below)}; use several for more certainty."
        )
    if not is_prime(number):
        nearest = f" The next one below is {largest_prime_below(number)}." if number > 2 else ""
        raise PrimeError(f"{who}: {number} is not a prime.{nearest}")
    return number
