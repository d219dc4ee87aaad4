"""What the script of the page knows: every tensor with its spectra, as plain data."""

from rankscope.auditing.audit import Audit
from rankscope.auditing.tensors import MatrixRow, TensorRow
from rankscope.report.filling import shortened
from rankscope.report.layer_diagrams import LayerDiagrams

NUM_QUANTILES = 64


def layer_data(audit: Audit, diagrams: LayerDiagrams) -> dict[str, object]:
    """Tensors, and the spectrum that chance gives each shape among them."""
    if not audit.tensors:
        return {"tensors": [], "references": {}, "problem": None}
    # Imported here, because it needs numpy: a page about a configuration alone must be quick.
    from rankscope.report.random_spectrum import random_quantiles, random_sizes

    def key(matrix: MatrixRow) -> str:
        return "x".join(str(size) for size in random_sizes(matrix))

    references: dict[str, list[float | None]] = {}
    for matrix in (matrix for row in audit.tensors for matrix in row.matrices):
        if key(matrix) not in references:
            quantiles = random_quantiles(random_sizes(matrix), NUM_QUANTILES)
            references[key(matrix)] = shortened(quantiles)
    tensors = [
        _tensor(row, [_matrix(matrix, key(matrix)) for matrix in row.matrices], diagram)
        for row, diagram in zip(audit.tensors, diagrams.keys, strict=True)
    ]
    return {"tensors": tensors, "references": references, "problem": diagrams.problem}


def _tensor(
    row: TensorRow, matrices: list[dict[str, object]], diagram: str | None
) -> dict[str, object]:
    return {**row.to_dict(), "matrices": matrices, "diagram": diagram}


def _matrix(matrix: MatrixRow, reference: str) -> dict[str, object]:
    values = shortened(matrix.singular_values)
    return {**matrix.to_dict(), "singular_values": values, "reference": reference}
