"""The result of an audit: plain frozen data."""

from dataclasses import dataclass

from rankscope.auditing.configuration import Configuration, Parameters
from rankscope.auditing.findings import Finding
from rankscope.auditing.tensors import TensorRow

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Audit:
    """What was found about a model.

    Args:
        source: the path or name it was read from.
        configuration: its shape, or None if only weights are known.
        parameters: exact counts: of the configuration if there is one, otherwise of the weights.
        findings: the weightiest first.
        tensors: one row for each, in the order of the file; empty without weights.
    """

    source: str
    configuration: Configuration | None
    parameters: Parameters
    findings: tuple[Finding, ...]
    tensors: tuple[TensorRow, ...] = ()

    def to_dict(self) -> dict[str, object]:
        """The document `audit.json` (docs/audit.md says what is in it)."""
        return {
            "format": "rankscope-audit",
            "version": SCHEMA_VERSION,
            "source": self.source,
            "configuration": None if self.configuration is None else self.configuration.to_dict(),
            "parameters": self.parameters.to_dict(),
            "findings": [finding.to_dict() for finding in self.findings],
            "tensors": [row.to_dict() for row in self.tensors],
        }
