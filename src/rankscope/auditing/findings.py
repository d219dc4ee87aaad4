"""Findings: short statements with a number, a threshold, a reason and a command."""

from dataclasses import asdict, dataclass
from enum import IntEnum


class Severity(IntEnum):
    """How much a finding weighs; what rests on a fitted law never outranks a theorem."""

    NOTE = 0
    ADVICE = 1
    WARNING = 2


@dataclass(frozen=True)
class Finding:
    """One thing worth knowing.

    Args:
        id: stable name, such as "head-bottleneck".
        severity: how much it weighs.
        title: one plain sentence with the number in it.
        value: what was found.
        threshold: what it is compared with.
        saving: share of all parameters that acting on it would save, or None.
        reason: why, worded no stronger than it is.
        reference: theorem, law (with the sizes and data it was fitted on) or method.
        command: the exact command that acts on it.
    """

    id: str
    severity: Severity
    title: str
    value: int | float
    threshold: int | float
    saving: float | None
    reason: str
    reference: str
    command: str

    def to_dict(self) -> dict[str, object]:
        """Plain data for JSON."""
        return {**asdict(self), "severity": self.severity.name.lower()}
