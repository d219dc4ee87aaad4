"""A drawable as a Python file of its own: a module that runs without this package.

Nothing from a diagram is pasted into code as it is: names become identifiers, and numbers are
written by `repr`.
"""

import re
from collections.abc import Iterator

from rankscope.diagrams.network import Drawable
from rankscope.diagrams.running.arrays import Array
from rankscope.diagrams.running.identifiers import identifiers
from rankscope.diagrams.running.schedule import Apply, Mask, Read, Schedule
from rankscope.diagrams.running.scheduling import schedule
from rankscope.diagrams.running.statements import Names, statements
from rankscope.diagrams.search.methods import AUTOMATIC, Method

# What PyTorch does not have over several positions; the module's own are in activations.py, and
# a test holds the two together.
FUNCTIONS = {
    "softmax": '''
def softmax(value: Tensor, over: tuple[int, ...]) -> Tensor:
    """Softmax over several positions at once."""
    if len(over) == 1:
        return torch.softmax(value, over[0])
    return torch.exp(value - torch.logsumexp(value, over, keepdim=True))
''',
    "log_softmax": '''
def log_softmax(value: Tensor, over: tuple[int, ...]) -> Tensor:
    """Logarithm of a softmax over several positions at once."""
    return value - torch.logsumexp(value, over, keepdim=True)
''',
    "layer_norm": '''
def layer_norm(value: Tensor, over: tuple[int, ...], eps: float) -> Tensor:
    """Subtract the mean over some positions, and divide by the standard deviation."""
    variance, mean = torch.var_mean(value, over, correction=0, keepdim=True)
    return (value - mean) * torch.rsqrt(variance + eps)
''',
    "rms_norm": '''
def rms_norm(value: Tensor, over: tuple[int, ...], eps: float) -> Tensor:
    """Divide by the root of the mean square over some positions."""
    return value * torch.rsqrt(value.square().mean(over, keepdim=True) + eps)
''',
    "causal_mask": '''
def causal_mask(value: Tensor, query: int, key: int) -> Tensor:
    """Minus infinity wherever the position of the key is after the position of the query."""
    places = torch.arange(max(value.shape), device=value.device)
    queries, keys = [1] * value.ndim, [1] * value.ndim
    queries[query], keys[key] = value.shape[query], value.shape[key]
    is_later = places[: value.shape[key]].view(keys) > places[: value.shape[query]].view(queries)
    return value.masked_fill(is_later, float("-inf"))
''',
}

# Names that mean something in every file.
TAKEN = ("self", "torch", "nn", "F", "Tensor", "image", "kernel", "place", "rows", *FUNCTIONS)


def to_source(drawable: Drawable, method: Method = AUTOMATIC) -> str:
    """Write a drawable as a Python file with one `nn.Module`, one line per move.

    The class has the parameters of `to_module(drawable)` under the same names, so that each can
    load the other's `state_dict`.

    Raises:
        SizeError: if sizes are missing or contradict each other.
        DiagramError: if a node can be given no values.
        ContractionError: if a region cannot be contracted.
        EinsumError: if one move has more indices than PyTorch has letters.
    """
    planned = schedule(drawable, method)
    body = "\n".join(_class(planned)) + "\n"
    imports = ["import torch", "from torch import Tensor, nn"]
    if re.search(r"\bF\.", body):
        imports.insert(1, "import torch.nn.functional as F")
    heading = f'"""{class_name(planned.name)}, as rankscope contracts it."""\n\n'
    functions = [FUNCTIONS[name].lstrip() for name in FUNCTIONS if name in _used(planned)]
    return "\n\n".join((heading + "\n".join(imports) + "\n", *functions, body))


def class_name(name: str) -> str:
    """A name for the class, made from the words of a drawable's name.

    Example:
        >>> class_name("multi-head"), class_name("2 layers")
        ('MultiHead', 'Network2Layers')
    """
    words = re.findall(r"[A-Za-z]+|[0-9]+", name)
    joined = "".join(word[:1].upper() + word[1:] for word in words)
    return joined if joined[:1].isalpha() and joined not in TAKEN else f"Network{joined}"


def _used(planned: Schedule) -> tuple[str, ...]:
    """Functions that the file has to define."""
    names = [
        "causal_mask" if isinstance(operation, Mask) else operation.function.name
        for operation in planned.operations
        if isinstance(operation, Mask | Apply)
    ]
    return tuple(dict.fromkeys(names))


def _class(planned: Schedule) -> Iterator[str]:
    inputs = planned.arrays[: planned.num_inputs]
    parameters = planned.arrays[planned.num_inputs :]
    local = identifiers((array.name for array in inputs), TAKEN)
    stored = identifiers(array.name for array in parameters)
    yield f"class {class_name(planned.name)}(nn.Module):"
    shapes = ", ".join(f"{local[array.name]} {array.shape}" for array in inputs)
    yield f'    """Takes {shapes or "nothing"}; returns {planned.shapes[planned.result]}."""'
    yield ""
    yield "    def __init__(self) -> None:"
    yield "        super().__init__()"
    for array in parameters:
        yield f"        self.{stored[array.name]} = nn.Parameter({_initial(array)})"
    yield ""
    arguments = ", ".join(("self", *(f"{name}: Tensor" for name in local.values())))
    yield f"    def forward({arguments}) -> Tensor:"
    names = [local[array.name] for array in inputs]
    names.extend(f"self.{stored[array.name]}" for array in parameters)
    yield from _body(planned, names)


def _initial(array: Array) -> str:
    shape = ", ".join(map(str, array.shape)) or "()"
    scale = f" * {array.fan}**-0.5" if array.fan > 1 else ""
    return f"torch.randn({shape}){scale}"


def _body(planned: Schedule, names: list[str]) -> Iterator[str]:
    """One statement per operation; a name is used again once no value needs it."""
    shapes, last = planned.shapes, _last_places(planned)
    for place, operation in enumerate(planned.operations):
        sources = tuple(names[source] for source in operation.sources)
        is_whole = isinstance(operation, Read) and operation.rows is None
        if is_whole and shapes[operation.sources[0]] == operation.shape:
            names.append(sources[0])
            continue
        label = planned.labels[operation.target]
        needed = [name for value, name in enumerate(names) if last[value] > place]
        target = identifiers([label], (*TAKEN, *needed))[label]
        own_shapes = tuple(shapes[source] for source in operation.sources)
        *before, final = statements(operation, Names(target, sources, own_shapes))
        for line in before:
            yield f"        {line}"
        yield f"        {final}  # {operation.shape}"
        names.append(target)
    yield f"        return {names[planned.result]}"


def _last_places(planned: Schedule) -> list[int]:
    """For every value the place of the operation that needs it last; arrays are always needed."""
    last = [len(planned.operations)] * planned.num_values
    for place, values in enumerate(planned.last_uses):
        for value in values:
            last[value] = place
    return last
