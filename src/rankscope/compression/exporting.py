"""Compressed models as files that run without this package: torch.export and ONNX.

    export(compressed.model, images, "model.onnx", OnnxExporter(), dense=model)

A layer that rebuilds or merges its weight would be written with that weight, and the file would be
as large as the dense one. Exports therefore always take the factor chain, on a copy of the model.
"""

import copy
import importlib
import io
import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path as FilePath
from types import ModuleType
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from rankscope.compression.calibration import shapes
from rankscope.compression.scores import Batch, run
from rankscope.compression.sites import FACTORIZED_PACKAGE
from rankscope.compression.usage import repeat_batch
from rankscope.errors import CompressionError, MissingExtraError
from rankscope.factorize.paths import Path
from rankscope.files import write_atomically

# --- The two kinds of files that models are exported to: how they are written, and run again ------


_MAX_ONNX_BYTES = 2**31 - 1  # of a protocol buffer


class Exporter(ABC):
    """Writes a model as a file that needs no Python of ours, and runs such a file."""

    name: ClassVar[str]

    @abstractmethod
    def write(self, model: nn.Module, example: Batch, *, any_batch: bool) -> bytes:
        """The file, for inputs like the example, or also for batches of any other size."""

    @abstractmethod
    def run(self, data: bytes, example: Batch) -> list[Tensor]:
        """Outputs of the written model."""


class TorchExporter(Exporter):
    """`torch.export`: a graph of PyTorch operations with its weights (.pt2)."""

    name: ClassVar[str] = "torch.export"

    def write(self, model: nn.Module, example: Batch, *, any_batch: bool) -> bytes:
        program = exported_program(model, example, any_batch=any_batch)
        for node in program.graph.nodes:
            node.meta.pop("stack_trace", None)  # paths of this machine, of no use elsewhere
        buffer = io.BytesIO()
        torch.export.save(program, buffer)
        return buffer.getvalue()

    def run(self, data: bytes, example: Batch) -> list[Tensor]:
        # Only ever what `write` has just made: a file from a stranger is not opened here.
        program = torch.export.load(io.BytesIO(data))
        given, named = arguments(example)
        with torch.no_grad():
            return tensors(program.module()(*given, **named))


class OnnxExporter(Exporter):
    """ONNX, run by onnxruntime.

    Raises:
        MissingExtraError: if the extra `export` is not installed.
        CompressionError: when writing, if the model has more than two gigabytes; when running, if
            onnxruntime does not take the file.
    """

    name: ClassVar[str] = "ONNX"

    def __init__(self) -> None:
        for package in ("onnx", "onnxscript", "onnxruntime"):
            _import(package)

    def write(self, model: nn.Module, example: Batch, *, any_batch: bool) -> bytes:
        num_bytes = sum(value.nbytes for value in model.state_dict().values())
        if num_bytes > _MAX_ONNX_BYTES:
            raise CompressionError(
                f"ONNX: the weights have {num_bytes:,} bytes, but one file holds at most "
                f"{_MAX_ONNX_BYTES:,}; use torch.export."
            )
        program = exported_program(model, example, any_batch=any_batch)
        with warnings.catch_warnings():
            # PyTorch's own exporter calls functions that PyTorch has deprecated.
            warnings.simplefilter("ignore", FutureWarning)
            written: Any = torch.onnx.export(program, dynamo=True, verbose=False)
        proto = written.model_proto
        graph = proto.graph
        described = (*graph.node, *graph.input, *graph.output, *graph.value_info)
        # Where each node came from, with paths of this machine: often larger than the weights.
        for part in (proto, graph, *described, *graph.initializer):
            part.ClearField("metadata_props")
        data: bytes = proto.SerializeToString()
        return data

    def run(self, data: bytes, example: Batch) -> list[Tensor]:
        runtime: Any = _import("onnxruntime")
        failures: Any = _import("onnxruntime.capi.onnxruntime_pybind11_state")
        options = runtime.SessionOptions()
        options.log_severity_level = 3  # errors only
        try:
            session = runtime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
        except (failures.Fail, failures.InvalidGraph, failures.InvalidProtobuf) as error:
            raise CompressionError(f"ONNX: onnxruntime cannot open the file: {error}") from error
        given, named = arguments(example)
        inputs = [part for part in (*given, *named.values()) if isinstance(part, Tensor)]
        names = [place.name for place in session.get_inputs()]
        feed = {name: part.numpy() for name, part in zip(names, inputs, strict=True)}
        return [torch.from_numpy(output) for output in session.run(None, feed)]


def exported_program(
    model: nn.Module, example: Batch, *, any_batch: bool
) -> torch.export.ExportedProgram:
    """The model as `torch.export` sees it; the first position of every input may be free."""
    given, named = arguments(example)
    batch = torch.export.Dim("batch") if any_batch else None

    def free(value: object) -> dict[int, Any] | None:
        return {0: batch} if isinstance(value, Tensor) and batch is not None else None

    shapes = (tuple(map(free, given)), {name: free(value) for name, value in named.items()})
    with torch.no_grad():
        return torch.export.export(
            model, given, dict(named), dynamic_shapes=shapes[1] if named else shapes[0]
        )


def arguments(example: Batch) -> tuple[tuple[object, ...], Mapping[str, object]]:
    """Positional and named arguments of a batch."""
    if isinstance(example, Mapping):
        return (), example
    return (example if isinstance(example, tuple) else (example,)), {}


def tensors(outputs: object) -> list[Tensor]:
    """All tensors of a model's outputs, in order.

    Example:
        >>> [tuple(part.shape) for part in tensors((torch.zeros(2), {"a": [torch.zeros(3)]}))]
        [(2,), (3,)]
    """
    if isinstance(outputs, Tensor):
        return [outputs]
    parts = outputs.values() if isinstance(outputs, Mapping) else outputs
    if not isinstance(outputs, Mapping | tuple | list):
        return []
    return [tensor for part in parts for tensor in tensors(part)]  # type: ignore[attr-defined]


def _import(package: str) -> ModuleType:
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise MissingExtraError(what="ONNX", package=package, extra="export") from error


TOLERANCE = 1e-3  # of the outputs' largest entry; runtimes sum in other orders
_TRIED_BATCH = 2  # a batch of one would be taken for a constant


@dataclass(frozen=True)
class Exported:
    """A file that was written, and what was measured before it was.

    Args:
        path: of the file.
        kind: "torch.export" or "ONNX".
        num_bytes: of the file.
        dense_bytes: of the dense model's file, written in the same way; None if it was not given.
        difference: largest difference to the module's outputs, relative to their largest entry.
        evaluation_path: how factorized layers compute in the file.
    """

    path: str
    kind: str
    num_bytes: int
    dense_bytes: int | None
    difference: float
    evaluation_path: str = str(Path.CHAIN)

    @property
    def ratio(self) -> float | None:
        """Bytes of the file / bytes of the dense model's."""
        return None if self.dense_bytes is None else self.num_bytes / self.dense_bytes

    def to_dict(self) -> dict[str, object]:
        """Plain data, for JSON."""
        return {**asdict(self), "ratio": self.ratio}


def export(
    model: nn.Module,
    example: Batch,
    path: FilePath | str,
    exporter: Exporter | None = None,
    *,
    dense: nn.Module | None = None,
    any_batch: bool = True,
) -> Exported:
    """Write a model as a file, after its outputs and its size have been checked.

    Args:
        model: left as it is; the file holds its inference mode.
        example: inputs with the batch first.
        path: of the file.
        exporter: `TorchExporter()` (by default) or `OnnxExporter()`.
        dense: the model before compression; the file must be smaller than its own would be.
        any_batch: whether the file must run on batches of any size, or only of the example's.

    Raises:
        CompressionError: if the model cannot be exported, the file gives other outputs, or it is
            not smaller than the dense model's; nothing is written then.
        MissingExtraError: if ONNX is asked for and not installed.
        OutputError: if the file cannot be written.
    """
    exporter = exporter or TorchExporter()
    tried = repeat_batch(example, _TRIED_BATCH) if any_batch else example
    small = _use_factor_chains(model)
    data = _write(exporter, small, tried, any_batch=any_batch)
    difference = _difference(exporter, data, small, tried)
    if any_batch:
        larger = repeat_batch(example, _TRIED_BATCH + 1)
        difference = max(difference, _difference(exporter, data, small, larger))
    if not difference <= TOLERANCE:
        raise CompressionError(
            f"export: the outputs of the {exporter.name} file differ from the model's by "
            f"{difference:.2g} of their largest entry, over {TOLERANCE}; it was not written."
        )
    dense_bytes = None
    if dense is not None:
        dense_bytes = len(_write(exporter, _use_factor_chains(dense), tried, any_batch=any_batch))
        if len(data) >= dense_bytes:
            raise CompressionError(
                f"export: the {exporter.name} file would have {len(data):,} bytes, not fewer than "
                f"the dense model's {dense_bytes:,}; compress more, or export the dense model."
            )
    write_atomically(path, data)
    return Exported(str(path), exporter.name, len(data), dense_bytes, difference)


def _use_factor_chains(model: nn.Module) -> nn.Module:
    """A copy in inference mode whose layers all use the factor chain."""
    copied = copy.deepcopy(model).eval()
    for module in copied.modules():
        configuration: Any = getattr(module, "config", None)
        if getattr(configuration, "use_cache", None) is True:
            configuration.use_cache = False  # keys and values for the next call are no tensors
        if hasattr(module, "path") and type(module).__module__.startswith(FACTORIZED_PACKAGE):
            module.path = Path.CHAIN  # type: ignore[assignment]
    for tensor in (*copied.parameters(), *copied.buffers()):
        # Views of larger memory would be written with all of it.
        tensor.data = tensor.data.clone(memory_format=torch.contiguous_format)
        tensor.requires_grad = False
    return copied


def _write(exporter: Exporter, model: nn.Module, example: Batch, *, any_batch: bool) -> bytes:
    try:
        return exporter.write(model, example, any_batch=any_batch)
    except (RuntimeError, ValueError, TypeError, AssertionError) as error:
        advice = " Try any_batch=False." if any_batch else ""
        reason = str(error).strip().partition("\n")[0]
        raise CompressionError(
            f"export: {exporter.name} cannot write {type(model).__name__}: {reason}.{advice}"
        ) from error


def _difference(exporter: Exporter, data: bytes, model: nn.Module, example: Batch) -> float:
    """Largest difference of two models' outputs, relative to the largest entry of each output."""
    with torch.no_grad():
        wanted = tensors(run(model, example))
    try:
        outputs = exporter.run(data, example)
    except (RuntimeError, ValueError, TypeError) as error:
        if isinstance(error, CompressionError):
            raise
        raise CompressionError(
            f"export: the {exporter.name} file cannot be run on ({shapes(example)}): {error}"
        ) from error
    pairs = zip(wanted, outputs, strict=True)
    return max((_relative(one, other) for one, other in pairs), default=0.0)


def _relative(wanted: Tensor, outputs: Tensor) -> float:
    if wanted.shape != outputs.shape or not wanted.numel():
        return 0.0 if wanted.shape == outputs.shape else float("inf")
    size = float(wanted.double().abs().max()) or 1.0
    return float((wanted.double() - outputs.double()).abs().max()) / size
