"""The audit of weights: a row for every tensor, one tensor in memory at a time."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import cast

import torch
from torch import Tensor

from rankscope.auditing.configuration import Configuration
from rankscope.auditing.duplicates import fingerprint
from rankscope.auditing.head_products import attention_blocks
from rankscope.auditing.packing import Packing, packing_of
from rankscope.auditing.parts import layer_of, part_of
from rankscope.auditing.sources import TensorEntry, TensorSource
from rankscope.auditing.spectra import Spectrum
from rankscope.auditing.tensors import MatrixRow, TensorRow
from rankscope.auditing.views import (
    DEFAULTS,
    WeightOptions,
    is_short,
    reason_before_reading,
    reason_in_entries,
    reason_of_size,
    views,
)
from rankscope.progress import Progress, Report, ignore


def audit_weights(
    source: TensorSource,
    configuration: Configuration | None,
    options: WeightOptions = DEFAULTS,
    *,
    report: Report = ignore,
) -> tuple[TensorRow, ...]:
    """Look at every tensor of a model.

    Args:
        source: its tensors; each is read when its turn comes and then forgotten, and so are the
            key and the value weights that stand in products with it.
        configuration: tells the heads apart; without it there are no products of heads.
        options: image sizes, geometries of convolutions, memory.
        report: told after every tensor.
    """
    audited = _Audit(source, configuration, options)
    rows: list[TensorRow] = []
    for done, entry in enumerate(source.entries, start=1):
        with _one_thread():
            row = audited.row(entry)
        rows.append(row)
        # What is tied has no entry of its own, but a name that people look for.
        rows.extend(
            replace(row, name=name, part=part_of(name), layer=layer_of(name), same_as=entry.name)
            for name in entry.tied_names
        )
        report(Progress("tensors", done, len(source.entries)))
    return tuple(rows)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Beside other work, two threads in LAPACK wait for each other: 114 s instead of 11 s.

    Measured on a BERT-base on two busy cores; one thread is fast enough when they are idle.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class _Audit:
    """What has been seen so far."""

    def __init__(
        self, source: TensorSource, configuration: Configuration | None, options: WeightOptions
    ) -> None:
        self._source = source
        self._options = options
        self._configuration = configuration
        self._entries = {entry.name: entry for entry in source.entries}
        self._shapes = {entry.name: entry.shape for entry in source.entries}
        self._blocks = attention_blocks(self._shapes, configuration)
        self._first_names: dict[bytes, str] = {}
        self._seen: dict[tuple[bytes, Packing | None], tuple[MatrixRow, ...]] = {}

    def row(self, entry: TensorEntry) -> TensorRow:
        row = TensorRow(
            name=entry.name,
            part=part_of(entry.name),
            shape=entry.shape,
            dtype=entry.dtype,
            reason=reason_before_reading(entry),
            layer=layer_of(entry.name),
        )
        if row.reason is not None and not is_short(row.reason):
            return row
        tensor = self._read(entry.name)
        if row.reason is not None:
            return replace(row, reason=reason_in_entries(tensor) or row.reason)
        mark = fingerprint(tensor)
        first = entry.name if mark is None else self._first_names.setdefault(mark, entry.name)
        row = replace(row, same_as=None if first == entry.name else first)
        reason = self._reason(tensor)
        if reason is not None:
            return replace(row, reason=reason)
        own, products = self._own(entry.name, tensor, mark), self._products(entry.name)
        return replace(row, matrices=(*own, *products))

    def _own(self, name: str, tensor: Tensor, mark: bytes | None) -> tuple[MatrixRow, ...]:
        """Of copies the same numbers would come out again, unless the name says how to look."""
        packing = packing_of(name, self._shapes, self._configuration)
        key = None if mark is None or tensor.ndim > 2 else (mark, packing)
        if key in self._seen:
            return self._seen[key]
        found = _rows(views(name, tensor, packing, self._options))
        if key is not None:
            self._seen[key] = found
        return found

    def _products(self, name: str) -> tuple[MatrixRow, ...]:
        block = self._blocks.get(name)
        if block is None or not all(map(self._is_usable, block.factors(name))):
            return ()
        return _rows(block.spectra(name, self._read))

    def _is_usable(self, name: str) -> bool:
        """The row of a factor that is not usable says why."""
        if reason_before_reading(self._entries[name]) is not None:
            return False
        return reason_in_entries(self._read(name)) is None

    def _reason(self, tensor: Tensor) -> str | None:
        shape, limit = tuple(tensor.shape), self._options.memory_limit
        return reason_of_size(shape, tensor.dtype, limit) or reason_in_entries(tensor)

    def _read(self, name: str) -> Tensor:
        return cast(Tensor, self._source.read(name))


def _rows(spectra: Iterator[tuple[str, Spectrum]]) -> tuple[MatrixRow, ...]:
    return tuple(spectrum.to_row(name) for name, spectrum in spectra)
