"""One call from a model to its audit.

>>> import rankscope
>>> print(rankscope.audit().configuration.family)
gpt2
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rankscope.auditing.configuration import Configuration, Parameters
from rankscope.auditing.embedded import embedded_model
from rankscope.auditing.families.catalogue import expected_tensors, read_configuration
from rankscope.auditing.findings import (
    Finding,
    contradictions,
    shape_findings,
    unnamed_findings,
    unnamed_tensors,
    weight_findings,
)
from rankscope.auditing.tensors import OnRow, TensorRow, part_of
from rankscope.auditing.weight_files import OpenedModel, open_model
from rankscope.display import Table, counted, fragment
from rankscope.errors import (
    ConfigurationError,
    MissingExtraError,
    ModelFileError,
    UnknownFamilyError,
    printable,
)
from rankscope.progress import Report, ignore

# --- The result of an audit: plain frozen data ----------------------------------------------------


SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Audit:
    """The result of an audit: configuration, parameters, weights and findings of a model.

    Args:
        source: the path or name it was read from.
        configuration: its shape, or None if only weights are known.
        parameters: exact counts: of the configuration and of what the weights hold beside it, or
            of the weights alone.
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

    def __repr__(self) -> str:
        shape = self.configuration
        parts = [] if shape is None else [f"{shape.family}, depth {shape.depth}"]
        parts.append(counted(self.parameters.total, "parameter"))
        parts.append(counted(len(self.findings), "finding"))
        parts += [counted(len(self.tensors), "tensor")] if self.tensors else []
        return f"<Audit of {printable(self.source)}: {', '.join(parts)}>"

    def _repr_html_(self) -> str:
        rows = [
            (
                finding.severity.name.lower(),
                finding.title,
                "" if finding.saving is None else f"{finding.saving:.1%}",
                finding.command,
            )
            for finding in self.findings
        ]
        head = ("severity", "finding", "saves", "command")
        return fragment(repr(self)[1:-1], table=Table(head, rows, numbers=(2,)))


# What batch normalization counts while it trains; nobody learns these by descent.
_STATISTICS = ("running_mean", "running_var")


def audit(
    model: object = None,
    *,
    family: str | None = None,
    name: str | None = None,
    report: Report = ignore,
    on_row: OnRow = lambda row: None,
) -> Audit:
    """Audit a model from its configuration, its weights, or both.

    Args:
        model: a path (folder, configuration, weights), a `torch.nn.Module`, or None for the small
            transformer that comes with the package.
        family: how to read the configuration, where it does not say.
        name: what to call the model in the audit; its path or class by default.
        report: called after every tensor.
        on_row: called with the row of a tensor as soon as it is there.

    Example:
        >>> findings = audit()
        >>> findings.configuration.depth, findings.findings[0].id
        (4, 'low-rank')

    Raises:
        ModelFileError: if there is no model, it is damaged or unsafe, or weights are not finite,
            empty, or integers.
        ConfigurationError: if the configuration cannot be read, or contradicts the weights.
    """
    opened = open_model(embedded_model("transformer") if model is None else model)
    source = name or ("the embedded transformer" if model is None else opened.name)
    expected = _configuration(opened, family)
    configuration, unnamed = expected.configuration, expected.unnamed
    rows = _rows(model, opened, configuration, report, on_row)
    # A copy of a named tensor is counted already, whichever of the two comes first.
    counted = {row.same_as or row.name for row in rows if row.name not in unnamed}
    beside = [row for row in rows if row.name not in counted and _is_counted(row)]
    more = _count_parameters(beside)
    parameters = _count_parameters(rows)
    findings: list[Finding] = []
    if expected.parameters is not None:
        parameters = expected.parameters + more
    if configuration is not None:
        findings += shape_findings(configuration)
        findings += unnamed_findings(beside, more, "" if model is None else source)
    findings += weight_findings(rows, parameters, "" if model is None else source)
    findings.sort(key=lambda finding: (-(finding.saving or 0.0), -finding.severity))
    return Audit(source, configuration, parameters, tuple(findings), rows)


def _configuration(opened: OpenedModel, family: str | None) -> "_Expected":
    """What the configuration says, and which of the weights it does not speak of."""
    document = opened.config
    if document is None or _is_compressed(document):
        return _Expected()
    try:
        configuration = read_configuration(document, family=family, who=opened.name)
    except UnknownFamilyError as unknown:
        return _built(document, unknown, opened.name)
    unnamed: tuple[str, ...] = ()
    if opened.tensors is not None:
        expected = expected_tensors(document, family=family, who=opened.name)
        actual = {entry.name: entry.shape for entry in opened.tensors.entries}
        wrong = contradictions(expected, actual)
        unnamed = unnamed_tensors(expected, actual)
        if wrong:
            raise ConfigurationError(
                f"{opened.name}: the configuration contradicts the weights: {wrong[0]}"
                + (f" ({len(wrong) - 1} more)." if len(wrong) > 1 else "")
            )
    return _Expected(configuration, configuration.parameters, frozenset(unnamed))


@dataclass(frozen=True)
class _Expected:
    """What follows from a configuration: sizes, counts, and the weights it does not speak of."""

    configuration: Configuration | None = None
    parameters: Parameters | None = None
    unnamed: frozenset[str] = frozenset()


def _is_compressed(document: Mapping[str, object]) -> bool:
    """Whether it is the dense configuration of a model that `compress` wrote smaller."""
    method = document.get("quantization_config")
    return isinstance(method, Mapping) and method.get("quant_method") == "rankscope"


def _built(document: Mapping[str, object], unknown: UnknownFamilyError, who: str) -> _Expected:
    """What transformers makes of a configuration that no family here reads.

    Its names are not compared with those of weights: transformers renames and joins what it loads.
    """
    if not isinstance(document.get("model_type"), str):
        raise unknown
    from rankscope.auditing.meta_models import build

    try:
        built = build(document, who=who)
    except MissingExtraError as missing:
        raise UnknownFamilyError(
            f"{unknown} With transformers it may be read all the same: pip install 'rankscope[hf]'."
        ) from missing
    return _Expected(built.sizes, built.parameters)


def _rows(
    model: object,
    opened: OpenedModel,
    configuration: Configuration | None,
    report: Report,
    on_row: OnRow,
) -> tuple[TensorRow, ...]:
    if opened.tensors is None:
        return ()
    from torch import nn

    from rankscope.auditing.spectra import geometries
    from rankscope.auditing.weights import WeightOptions, audit_weights

    # A file does not say how a convolution strides; a module does.
    known = geometries(model) if isinstance(model, nn.Module) else {}
    options = WeightOptions(geometries=known)
    rows = audit_weights(opened.tensors, configuration, options, report=report, on_row=on_row)
    if opened.config is not None and _is_compressed(opened.config):
        rows = _without_guards(rows)
    _require_sound(rows, opened.name)
    return rows


def _without_guards(rows: tuple[TensorRow, ...]) -> tuple[TensorRow, ...]:
    """Without the single numbers that stand for dense weights of which the file has the cores."""
    modules = {row.name.partition(".cores.")[0] for row in rows if ".cores." in row.name}
    return tuple(
        row for row in rows if row.shape != (1,) or row.name.removesuffix(".weight") not in modules
    )


def _require_sound(rows: Sequence[TensorRow], name: str) -> None:
    """Refuse weights that no model should have; buffers may well hold integers."""
    broken = [
        row
        for row in rows
        if 0 in row.shape
        or "NaN" in (row.reason or "")
        or (row.name.endswith("weight") and "float" not in row.dtype)
    ]
    if broken:
        raise ModelFileError(
            f"{name}: {broken[0].name} is no usable weight ({broken[0].reason})"
            + (f", and {len(broken) - 1} more are none" if len(broken) > 1 else "")
            + ". Gather the shards of a distributed run, save before quantizing, or go back to a "
            "checkpoint from before the loss diverged."
        )


def _count_parameters(rows: Sequence[TensorRow]) -> Parameters:
    """Parameters of the weights by part; copies are counted once, and buffers not at all."""
    counts: Counter[str] = Counter()
    for row in rows:
        if _is_counted(row):
            counts[part_of(row.name)] += math.prod(row.shape)
    return Parameters(**counts)


def _is_counted(row: TensorRow) -> bool:
    is_buffer = "float" not in row.dtype or row.name.endswith(_STATISTICS)
    return row.same_as is None and not is_buffer
