"""A drawable as a Python file of its own: a module that runs without this package.

`to_module` runs exactly these lines. Nothing from a diagram is pasted into code as it is: names
become identifiers, and numbers and options are written by `repr`.
"""

import builtins
import keyword
import re
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from rankscope.diagrams.network import Constant, Drawable
from rankscope.diagrams.running.arrays import Array
from rankscope.diagrams.running.expressions import Expression, literal, word
from rankscope.diagrams.running.fusing import fused
from rankscope.diagrams.running.operations import Fill, Shape
from rankscope.diagrams.running.schedule import Schedule, schedule
from rankscope.diagrams.running.statements import UNKNOWN, expression
from rankscope.diagrams.search import AUTOMATIC, Method

# What PyTorch does not have in one call; a file defines those that it uses.
FUNCTIONS = {
    "constant": '''
def constant(value: float, like: Tensor) -> Tensor:
    """One number; unless it is an integer, in the precision of `like` if that has any."""
    is_number = isinstance(value, float) and like.is_floating_point()
    return torch.full((), value, dtype=like.dtype if is_number else None, device=like.device)
''',
    "softmax": '''
def softmax(value: Tensor, over: tuple[int, ...]) -> Tensor:
    """Softmax over several positions at once."""
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
TAKEN = ("self", "torch", "nn", "F", "Tensor", "b64decode", *FUNCTIONS)

# Attributes of torch.nn.Module and of ours, which a parameter must not hide; a test compares
# this with the installed PyTorch. (Listed, because writing source must not import torch.)
MODULE_ATTRIBUTES = (
    "T_destination add_module apply array_names bfloat16 buffers call_super_init "
    "children compile cpu cuda double dump_patches eval extra_repr float forward "
    "get_buffer get_extra_state get_parameter get_submodule half input_names ipu "
    "load_state_dict modules mtia named_buffers named_children named_modules "
    "named_parameters parameters register_backward_hook register_buffer "
    "register_forward_hook register_forward_pre_hook register_full_backward_hook "
    "register_full_backward_pre_hook register_load_state_dict_post_hook "
    "register_load_state_dict_pre_hook register_module register_parameter "
    "register_state_dict_post_hook register_state_dict_pre_hook requires_grad_ "
    "schedule set_extra_state set_submodule share_memory source state_dict to to_empty train "
    "training type xpu zero_grad"
)


def to_source(drawable: Drawable, method: Method = AUTOMATIC) -> str:
    """Write a drawable as a Python file with one `nn.Module`, one line per move.

    The class has the parameters of `to_module(drawable)` under the same names, so that each can
    load the other's `state_dict`. Moves that PyTorch has one call for share a line, and a value
    is deleted as soon as nothing needs it.

    Raises:
        SizeError: if sizes are missing or contradict each other.
        DiagramError: if a node can be given no values.
        ContractionError: if a region cannot be contracted.
    """
    planned = schedule(drawable, method)
    return write_source(planned, [Stored(array.shape) for array in planned.stored])


@dataclass(frozen=True)
class Stored:
    """How an array is stored: its shape, and what it holds if that is not PyTorch's default."""

    shape: Shape
    dtype: str | None = None


def write_source(planned: Schedule, stored: Sequence[Stored]) -> str:
    """A schedule as a file, for arrays that are stored like this."""
    body = "\n".join(_class(fused(planned), stored)) + "\n"
    imports = ["import torch", "from torch import Tensor, nn"]
    if re.search(r"\bF\.", body):
        imports.insert(1, "import torch.nn.functional as F")
    if planned.constants:
        imports.insert(0, "from base64 import b64decode\n")
    heading = f'"""{class_name(planned.name)}, as rankscope contracts it."""\n\n'
    functions = [
        text.lstrip() for name, text in FUNCTIONS.items() if re.search(rf"(?<![\w.]){name}\(", body)
    ]
    return "\n\n".join((heading + "\n".join(imports) + "\n", *functions, body))


def class_name(name: str) -> str:
    """A name for the class, made from the words of a drawable's name.

    Example:
        >>> class_name("multi-head"), class_name("2 layers")
        ('MultiHead', 'Network2Layers')
    """
    words = re.findall(r"[A-Za-z]+|[0-9]+", name)
    joined = "".join(word[:1].upper() + word[1:] for word in words)
    is_free = joined[:1].isalpha() and joined not in (*TAKEN, *keyword.kwlist)
    return joined if is_free else f"Network{joined}"


def identifiers(names: Iterable[str], taken: Iterable[str] = ()) -> dict[str, str]:
    """Give each name an identifier of its own: words of letters, digits and underscores.

    Example:
        >>> identifiers(["layers.0.weight", "layers_0_weight", "class", "X'"])
        {'layers.0.weight': 'layers_0_weight', 'layers_0_weight': 'layers_0_weight_2', \
'class': 'class_', "X'": 'X'}
    """
    reserved = {*MODULE_ATTRIBUTES.split(), *keyword.kwlist, *dir(builtins)}
    used = set(taken)
    chosen: dict[str, str] = {}
    for name in names:
        plain = re.sub(r"[^0-9A-Za-z]+", "_", name).strip("_") or "array"
        if plain[0].isdigit():
            plain = f"array_{plain}"
        if plain in reserved:
            plain = f"{plain}_"
        own, count = plain, 1
        while own in used:
            count += 1
            own = f"{plain.rstrip('_')}_{count}"
        used.add(own)
        chosen[name] = own
    return chosen


def needs_like(planned: Schedule) -> bool:
    """Whether a constant has no array that it could take its precision and its device from."""
    return any(isinstance(each, Fill) and not each.sources for each in planned.operations)


def _class(planned: Schedule, stored: Sequence[Stored]) -> Iterator[str]:
    inputs = planned.inputs
    local = identifiers((array.name for array in inputs), TAKEN)
    own = identifiers(array.name for array in planned.stored)
    yield f"class {class_name(planned.name)}(nn.Module):"
    shapes = ", ".join(f"{local[array.name]} {literal(array.shape)}" for array in inputs)
    made = ", ".join(literal(planned.shapes[result]) for result in planned.results)
    yield f'    """Takes {shapes or "nothing"}; returns {made}."""'
    yield ""
    yield "    def __init__(self) -> None:"
    yield "        super().__init__()"
    constants = {constant.name: constant for constant in planned.constants}
    for array, like in zip(planned.stored, stored, strict=True):
        name = own[array.name]
        if array.is_parameter and like.dtype is None:
            yield f"        self.{name} = nn.Parameter({_initial(array, like.shape)})"
        else:
            numbers = _numbers(like, constants.get(array.name))
            yield f'        self.register_buffer("{name}", {numbers})'
    if needs_like(planned):
        yield '        self.register_buffer("_like", torch.zeros(()), persistent=False)'
    yield ""
    arguments = ", ".join(("self", *(f"{name}: Tensor" for name in local.values())))
    result = "Tensor" if len(planned.results) == 1 else "tuple[Tensor, ...]"
    yield f"    def forward({arguments}) -> {result}:"
    # Whoever reads rows of an input may be given more rows than it needs.
    given = [
        Expression(local[a.name], UNKNOWN if a.sliced or not a.readers else a.shape) for a in inputs
    ]
    given.extend(
        Expression(f"self.{own[array.name]}", like.shape)
        for array, like in zip(planned.stored, stored, strict=True)
    )
    for line in _body(planned, given):
        yield f"        {line}"


def _initial(array: Array, shape: Shape) -> str:
    sizes = ", ".join(str(int(size)) for size in shape) or "()"
    scale = f" * {array.fan}**-0.5" if array.fan > 1 else ""
    return f"torch.randn({sizes}){scale}"


def _numbers(like: Stored, constant: Constant | None) -> str:
    """What a buffer holds at first: its own numbers, or zeros."""
    if constant is None or not constant.data:
        dtype = "" if like.dtype is None else f", dtype=torch.{word(like.dtype)}"
        return f"torch.zeros({literal(like.shape)}{dtype})"
    text = b64encode(constant.data).decode("ascii")
    flat = f'torch.frombuffer(bytearray(b64decode("{text}")), dtype=torch.{word(constant.dtype)})'
    return f"{flat}.reshape({literal(constant.shape)})"


@dataclass(frozen=True)
class _Line:
    """One statement: the value that it makes, its code, and the values that the code names."""

    target: int
    value: Expression
    uses: frozenset[int]


def _body(planned: Schedule, given: Sequence[Expression]) -> Iterator[str]:
    """One statement per operation; a name is used again, or deleted, once no value needs it."""
    num_arrays = len(given)
    lines = list(_lines(planned, given, lambda target: f"_{target}"))
    last = {value: place for place, line in enumerate(lines) for value in (line.target, *line.uses)}
    names: dict[int, str] = {}
    free = [expression.code for expression in given]

    def named(target: int) -> str:
        place = len(names)
        needed = [names[value] for value in names if last[value] > place]
        label = planned.labels[target]
        names[target] = identifiers([label], (*TAKEN, *free, *needed))[label]
        return names[target]

    for place, line in enumerate(_lines(planned, given, named)):
        if line.target == RETURN:
            yield f"return {line.value.code}"
            return
        name = names[line.target]
        yield f"{name} = {line.value.code}  # {literal(line.value.actual)}"
        done = [names[v] for v in sorted(line.uses) if v >= num_arrays and last[v] == place]
        if place < len(lines) - 2 and any(each != name for each in done):
            yield f"del {', '.join(each for each in done if each != name)}"


# The target of the last line.
RETURN = -1


def _lines(
    planned: Schedule, given: Sequence[Expression], named: Callable[[int], str]
) -> Iterator[_Line]:
    """The statements; views are written where they are used, if that is one place."""
    counts = Counter(source for each in planned.operations for source in each.sources)
    counts.update(planned.results)
    values = dict(enumerate(given))
    uses = {place: frozenset((place,)) for place in values}
    # Computed in the line of the view that follows it: they are one value to whoever reads.
    begun: set[int] = set()
    for place, operation in enumerate(planned.operations):
        target, sources = operation.target, operation.sources
        value = expression(operation, tuple(values[source] for source in sources))
        used = frozenset[int]().union(*(uses[source] for source in sources))
        is_view = operation.stored_entries is None
        is_same = is_view and value.code == values[sources[0]].code
        is_inside = is_same or (is_view and counts[target] == 1)
        if not is_view and _is_turned_next(planned, place, counts):
            begun.add(target)
        if target in begun or (is_inside and begun.isdisjoint(sources)):
            values[target], uses[target] = value, used
            continue
        values[target] = Expression(named(target), value.shape, value.held)
        uses[target] = frozenset((target,))
        yield _Line(target, value, used)
    returned = [values[result].whole for result in planned.results]
    kept = frozenset[int]().union(*(uses[result] for result in planned.results))
    if len(returned) > 1:
        returned = [Expression(", ".join(value.code for value in returned), ())]
    yield _Line(RETURN, returned[0], kept)


def _is_turned_next(planned: Schedule, place: int, counts: Counter[int]) -> bool:
    """Whether the next operation looks at a value under the same name, and nothing else does."""
    target = planned.operations[place].target
    if place + 1 == len(planned.operations) or counts[target] != 1:
        return False
    following = planned.operations[place + 1]
    is_view = following.stored_entries is None and following.sources == (target,)
    return is_view and planned.labels[following.target] == planned.labels[target]
