"""From a PyTorch module to a network of diagrams."""

import inspect
from collections.abc import Sequence
from typing import Any

from torch import fx, nn

from rankscope.diagrams.network import Network
from rankscope.diagrams.parts import Role
from rankscope.diagrams.reading.arrays import Arrays
from rankscope.diagrams.reading.calls import Call, Unread, read_module, reader_of
from rankscope.diagrams.reading.captions import captioned
from rankscope.diagrams.reading.inline import inline
from rankscope.diagrams.reading.inputs import with_whole_inputs
from rankscope.diagrams.reading.joint import split_rows
from rankscope.diagrams.reading.modules import READERS
from rankscope.diagrams.reading.notebook import Notebook
from rankscope.diagrams.reading.problems import told
from rankscope.diagrams.reading.sorts import guess
from rankscope.diagrams.reading.tracing import ReadingTracer, Stopped
from rankscope.diagrams.reading.values import Value, whole
from rankscope.diagrams.validation import check_size
from rankscope.errors import RequestError, UnsupportedModuleError


def from_module(
    module: nn.Module, *input_shapes: tuple[int, ...], name: str | None = None
) -> Network:
    """Read a module as a network of diagrams.

    Layers of torch.nn are recognized by their class; the `forward` of other modules is run on
    stand-ins that know only shapes. Dropout and batch normalization must be in evaluation mode;
    forward hooks of layers of torch.nn are not seen.
    The value of the network is the module's output, its arrays are those of `module_arrays`.
    Attention takes one shape (self-attention), two (queries, and keys that are also values) or
    three.

    Args:
        module: what to read; it is not run and not changed.
        input_shapes: one shape for each tensor that `forward` is given.
        name: of the network; by default the module's class.

    Example:
        >>> network = from_module(nn.Sequential(nn.Linear(784, 256), nn.ReLU()), (1, 784))
        >>> [step.name for step in network.steps]
        ['0', '1']

    Raises:
        UnsupportedModuleError: if something cannot be read; all such parts are named.
        SizeError: if the shapes do not fit the module.
        RequestError: if the number of shapes does not fit `forward`.
    """
    arrays = Arrays(module)
    names = [
        f"{argument}_input" if argument in arrays.names else argument
        for argument in _input_names(module, len(input_shapes))
    ]
    inputs = [_input(*given) for given in zip(names, input_shapes, strict=True)]
    notebook = Notebook(reserved={*names, *arrays.names})
    call = Call(notebook, arrays, READERS, "", "", {}, type(module).__name__)
    result = _read(call, module, inputs)
    if notebook.problems:
        raise UnsupportedModuleError(told(type(module).__name__, notebook.problems))
    value = _single(module, result)
    network = inline(notebook.finished(name or type(module).__name__, value))
    network = inline(split_rows(network, arrays.num_rows))
    return captioned(with_whole_inputs(network, inputs), names)


def _input_names(module: nn.Module, count: int) -> list[str]:
    """Names of the first arguments of `forward`, one for each shape.

    Raises:
        RequestError: if `forward` takes more or fewer.
    """
    found: list[str] = []
    required = 0
    for parameter in inspect.signature(module.forward).parameters.values():
        if parameter.kind is parameter.VAR_POSITIONAL:
            found += [f"{parameter.name}{n}" for n in range(count - len(found))]
        elif parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            found.append(parameter.name)
            required += parameter.default is parameter.empty
    if isinstance(module, nn.MultiheadAttention):
        required, found = 1, found[:3]
    if not required <= count <= len(found):
        wanted = str(required) if required == len(found) else f"{required} to {len(found)}"
        raise RequestError(
            f"from_module: {type(module).__name__}.forward takes {wanted} tensors "
            f"({', '.join(found)}), got {count} shapes."
        )
    return found[:count]


def _input(name: str, shape: tuple[int, ...]) -> Value:
    for size in shape:
        check_size(f"an axis of input {name!r}", size)
    return whole(name, shape, guess(len(shape)), Role.DATA)


def _read(call: Call, module: nn.Module, inputs: Sequence[Value]) -> Any:
    if isinstance(module, nn.MultiheadAttention):
        inputs = (*inputs, *[inputs[-1]] * (3 - len(inputs)))
    if reader_of(module, READERS) is not None:
        return read_module(call, module, "", inputs, {})
    tracer = ReadingTracer(call, inputs)
    try:
        tracer.trace(module)
    except Stopped as stop:
        if stop.args:
            call.complain(str(stop))
    except (
        RuntimeError,
        TypeError,
        NotImplementedError,
        AttributeError,
        fx.proxy.TraceError,
    ) as error:
        if not call.notebook.problems:
            raise UnsupportedModuleError(
                f"from_module cannot run {type(module).__name__}.forward on shapes alone: {error}"
            ) from error
    return tracer.result


def _single(module: nn.Module, result: Any) -> Value:
    """The one tensor that a module returns; maps of attention weights do not count."""
    found = result
    if isinstance(found, tuple) and found and all(_is_extra(part) for part in found[1:]):
        found = found[0]
    if not isinstance(found, Value):
        count = f"{len(found)} values" if isinstance(found, tuple) else "no tensor"
        raise UnsupportedModuleError(
            f"from_module: {type(module).__name__} returns {count}, wanted one tensor."
        )
    return found


def _is_extra(part: object) -> bool:
    return part is None or isinstance(part, Unread)
