"""A model's forward pass as a list of operations on values.

The model is run once on tensors that write down what is done to them; what was written is then run
on other inputs, and must give what the model gives.
"""

import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from rankscope.errors import SizeError, UnsupportedModuleError
from rankscope.robustness.recording import Recorder, Value, Watched, replaced, values_in

_BATCH, _OTHER_BATCH = 2, 3  # two sizes, so that one written into a shape is noticed
_RESHAPES = frozenset(
    ("view", "reshape", "flatten", "unflatten", "squeeze", "unsqueeze", "view_as", "reshape_as")
)


@dataclass(frozen=True, eq=False)
class Operation:
    """One step of a forward pass.

    Args:
        name: of the module it happens in, and of the function.
        kind: name of the function; of a module that is taken whole, the name of its class.
        module: that is taken whole, or None.
        arguments: what it is called with: values, numbers, tensors that do not depend on inputs.
        options: the same by name.
        output: what it makes.
        call: the function itself.
    """

    name: str
    kind: str
    module: nn.Module | None
    arguments: tuple[Any, ...]
    options: Mapping[str, Any]
    output: Value
    call: Callable[..., Any]

    @property
    def inputs(self) -> tuple[Value, ...]:
        """The values it takes, in order; one that is taken twice stands twice."""
        return tuple(values_in((self.arguments, dict(self.options))))

    def run(self, *inputs: Tensor) -> Tensor:
        """Its output for batches of any length, one tensor for each of `inputs`."""
        if self.kind in _RESHAPES:
            return inputs[0].reshape(len(inputs[0]), *self.output.shape)
        given: Iterator[Tensor] = iter(inputs)
        arguments, options = replaced((self.arguments, dict(self.options)), lambda _: next(given))
        outputs: Tensor = self.call(*arguments, **options)
        return outputs

    def refuse(self, reason: str) -> UnsupportedModuleError:
        """What to raise, with the name of the step."""
        return UnsupportedModuleError(f"{self.name} ({self.kind}): {reason}.")


@dataclass(frozen=True, eq=False)
class Graph:
    """Operations in the order in which they are done, from one input to one output."""

    input: Value
    operations: tuple[Operation, ...]
    output: Value

    def run(self, inputs: Tensor) -> Tensor:
        """What the model gives for a batch."""
        known = {self.input: inputs}
        for operation in self.operations:
            known[operation.output] = operation.run(*(known[v] for v in operation.inputs))
        return known[self.output]

    def until(self, count: int) -> "Graph":
        """The first operations only, up to the output of the last of them."""
        return Graph(self.input, self.operations[:count], self.operations[count - 1].output)


def read_graph(
    model: nn.Module,
    input_shape: tuple[int, ...],
    *,
    wholes: tuple[type[nn.Module], ...] = (),
    dtype: torch.dtype | None = None,
) -> Graph:
    """Read what a model does in inference mode; the model itself stays untouched.

    Args:
        model: takes one batch and gives one batch, without mixing samples.
        input_shape: of one sample.
        wholes: classes of modules that are one operation each, and not looked into.
        dtype: of the inputs; None for that of the model's parameters.

    Raises:
        UnsupportedModuleError: if it cannot be read: it looks at numbers, takes samples together,
            is random, or changes tensors in place that it uses again.
        SizeError: if it does not take such inputs.
    """
    twin = copy.deepcopy(model).eval().requires_grad_(requires_grad=False)
    plain = copy.deepcopy(twin)
    like = next((p for p in twin.parameters() if p.is_floating_point()), torch.empty(0))
    generator = torch.Generator().manual_seed(0)
    batches = [
        torch.rand(size, *input_shape, generator=generator).to(like).to(dtype or like.dtype)
        for size in (_BATCH, _OTHER_BATCH)
    ]
    recorder = Recorder()
    _watch(twin, recorder, wholes)
    with torch.no_grad():
        try:
            watched = recorder.start(batches[0])
            graph = _finished(recorder, watched.value, twin(watched))
            expected = torch.cat([plain(sample[None]) for sample in batches[1]])
        except UnsupportedModuleError:
            raise
        except (RuntimeError, ValueError, TypeError) as error:
            raise SizeError(
                f"{type(model).__name__} cannot be run on inputs of shape {input_shape}: {error}"
            ) from error
        _check(graph, batches[1], expected, type(model).__name__)
    return graph


def _watch(twin: nn.Module, recorder: Recorder, wholes: tuple[type[nn.Module], ...]) -> None:
    for path, module in twin.named_modules():
        if isinstance(module, wholes):
            untouched = copy.copy(module)
            module.forward = partial(recorder.call_whole, path, untouched)
        else:
            module.forward = partial(recorder.call_inside, path, module.forward)


def _finished(recorder: Recorder, start: Value, result: object) -> Graph:
    """The operations that the output depends on."""
    if not isinstance(result, Watched):
        raise UnsupportedModuleError(
            f"The model must give one tensor that depends on its input, got "
            f"{type(result).__name__}."
        )
    needed, kept = {result.value}, []
    for note in reversed(recorder.notes):
        operation = Operation(*note)
        if operation.output in needed:
            needed.update(operation.inputs)
            kept.append(operation)
    return Graph(start, tuple(reversed(kept)), result.value)


def _check(graph: Graph, inputs: Tensor, expected: Tensor, who: str) -> None:
    # Rounding differs with the size of a batch, and nets amplify it.
    tolerance = torch.finfo(expected.dtype).eps ** 0.5
    try:
        found = graph.run(inputs)
    except (RuntimeError, IndexError) as error:
        raise UnsupportedModuleError(
            f"{who} writes the number of samples into its shapes: read with {_BATCH}, it cannot be "
            f"run with {_OTHER_BATCH} ({error})."
        ) from error
    is_same = found.shape == expected.shape and torch.allclose(
        found, expected, rtol=tolerance, atol=tolerance * float(expected.abs().max())
    )
    if not is_same:
        raise UnsupportedModuleError(
            f"{who} cannot be read: what was read differs from what it computes. It takes samples "
            "together, is random in inference mode, or changes in place a tensor that it uses "
            "again."
        )
