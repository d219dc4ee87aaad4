"""What came of checking a certificate."""

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Verdict:
    """What came of checking a certificate.

    Args:
        is_proved: whether everything in it is true.
        statement: what it claims.
        lower: the separation rank it claims at least.
        reason: why it failed; None if it did not.
        soundness_log2: logarithm to the base 2 of the probability that a false certificate passes,
            for every statement that a cheat tries; None if it is 0, as every determinant was
            computed.
        num_minors: how many were checked.
        paths: how.
        seconds: how long it took.
    """

    is_proved: bool
    statement: str
    lower: int
    reason: str | None
    soundness_log2: float | None
    num_minors: int
    paths: tuple[str, ...]
    seconds: float

    @property
    def soundness(self) -> str:
        """The probability that a false certificate passes, rounded up."""
        if self.soundness_log2 is None:
            return "0"
        return f"2^{math.ceil(self.soundness_log2 * 10) / 10:.1f}"

    def __str__(self) -> str:
        if not self.is_proved:
            return f"FAILED: {self.reason}\nNot proved: {self.statement}"
        lines = [f"PROVED: {self.statement}", f"soundness error {self.soundness}"]
        return "\n".join([*lines, *self.paths])

    def to_dict(self) -> dict[str, object]:
        """Plain data for JSON."""
        return {
            "verdict": "PROVED" if self.is_proved else "FAILED",
            "statement": self.statement,
            "lower": self.lower,
            "reason": self.reason,
            "soundness": self.soundness,
            "minors": self.num_minors,
            "paths": list(self.paths),
            "seconds": round(self.seconds, 3),
        }
