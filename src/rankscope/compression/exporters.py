"""The two kinds of files that models are exported to: how they are written, and run again."""

import importlib
import io
import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import ModuleType
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from rankscope.compression.scores import Batch
from rankscope.errors import CompressionError, MissingExtraError

_MAX_ONNX_BYTES = 2**31 - 1  # of a protocol buffer


class Exporter(ABC):
    """Writes a model as a file that needs no Python of ours, and runs such a file."""

    name: ClassVar[str]

    @abstractmethod
    def write(self, model: nn.Module, example: Batch, *, any_batch: bool) -> bytes:
        """The file, for inputs like the example, or also for batches of any other size."""

    @abstractmethod
    def run(self, data: bytes, example: Batch) -> list[Tensor]:
        """What the written model gives."""


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
            _imported(package)

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
        runtime: Any = _imported("onnxruntime")
        failures: Any = _imported("onnxruntime.capi.onnxruntime_pybind11_state")
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


def _imported(package: str) -> ModuleType:
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise MissingExtraError(what="ONNX", package=package, extra="export") from error
