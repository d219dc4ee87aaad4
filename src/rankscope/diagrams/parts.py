"""What a diagram is made of: indices, nodes, convolutions, regions and the functions they apply."""

import math
from dataclasses import dataclass
from enum import StrEnum

from rankscope.errors import DiagramError

# --- The functions a barrier may apply once everything inside it is contracted --------------------


@dataclass(frozen=True)
class Recipe:
    """How one function is written, in pictures and in code.

    `source` is a Python expression in `value`, the positions `over` (a tuple of integers) and
    the function's options; `label` is TeX.
    """

    label: str
    source: str
    normalizes: bool = False
    options: tuple[tuple[str, float | str], ...] = ()


# One visible table: a function that is not here does not exist.
RECIPES: dict[str, Recipe] = {
    "identity": Recipe(r"\mathrm{id}", "value"),
    "relu": Recipe(r"\mathrm{ReLU}", "F.relu(value)"),
    "relu6": Recipe(r"\mathrm{ReLU6}", "F.relu6(value)"),
    "leaky_relu": Recipe(
        r"\mathrm{LeakyReLU}",
        "F.leaky_relu(value, {negative_slope})",
        options=(("negative_slope", 0.01),),
    ),
    "elu": Recipe(r"\mathrm{ELU}", "F.elu(value, {alpha})", options=(("alpha", 1.0),)),
    "gelu": Recipe(
        r"\mathrm{GELU}",
        "F.gelu(value, approximate={approximate})",
        options=(("approximate", "none"),),
    ),
    "silu": Recipe(r"\mathrm{SiLU}", "F.silu(value)"),
    "tanh": Recipe(r"\tanh", "torch.tanh(value)"),
    "sigmoid": Recipe(r"\sigma", "torch.sigmoid(value)"),
    "softplus": Recipe(
        r"\mathrm{softplus}",
        "F.softplus(value, {beta}, {threshold})",
        options=(("beta", 1.0), ("threshold", 20.0)),
    ),
    "exp": Recipe(r"\exp", "torch.exp(value)"),
    "log": Recipe(r"\log", "torch.log(value)"),
    "sqrt": Recipe(r"\mathrm{sqrt}", "torch.sqrt(value)"),
    "rsqrt": Recipe(r"1/\mathrm{sqrt}", "torch.rsqrt(value + {eps})", options=(("eps", 0.0),)),
    "reciprocal": Recipe(r"1/", "torch.reciprocal(value)"),
    "power": Recipe(
        r"\mathrm{power}", "torch.pow(value, {exponent})", options=(("exponent", 2.0),)
    ),
    "sin": Recipe(r"\sin", "torch.sin(value)"),
    "cos": Recipe(r"\cos", "torch.cos(value)"),
    "abs": Recipe(r"\mathrm{abs}", "torch.abs(value)"),
    "erf": Recipe(r"\mathrm{erf}", "torch.erf(value)"),
    "clamp": Recipe(
        r"\mathrm{clamp}",
        "torch.clamp(value, {min}, {max})",
        options=(("min", -math.inf), ("max", math.inf)),
    ),
    "hardtanh": Recipe(
        r"\mathrm{hardtanh}",
        "F.hardtanh(value, {min_val}, {max_val})",
        options=(("min_val", -1.0), ("max_val", 1.0)),
    ),
    "hardswish": Recipe(r"\mathrm{hardswish}", "F.hardswish(value)"),
    "hardsigmoid": Recipe(r"\mathrm{hardsigmoid}", "F.hardsigmoid(value)"),
    "mish": Recipe(r"\mathrm{mish}", "F.mish(value)"),
    "selu": Recipe(r"\mathrm{SELU}", "F.selu(value)"),
    "log_sigmoid": Recipe(r"\log\sigma", "F.logsigmoid(value)"),
    "softmax": Recipe(r"\mathrm{softmax}", "softmax(value, {over})", normalizes=True),
    "log_softmax": Recipe(r"\mathrm{log\,softmax}", "log_softmax(value, {over})", normalizes=True),
    "layer_norm": Recipe(
        r"\mathrm{LN}",
        "layer_norm(value, {over}, {eps})",
        normalizes=True,
        options=(("eps", 1e-5),),
    ),
    "rms_norm": Recipe(
        r"\mathrm{RMS}", "rms_norm(value, {over}, {eps})", normalizes=True, options=(("eps", 1e-6),)
    ),
}


@dataclass(frozen=True)
class Function:
    """A named function with its options.

    Example:
        >>> Function("layer_norm").option("eps")
        1e-05
        >>> Function("softmax").normalizes
        True
    """

    name: str
    options: tuple[tuple[str, float | str], ...] = ()

    def __post_init__(self) -> None:
        if self.name not in RECIPES:
            known = ", ".join(sorted(RECIPES))
            raise DiagramError(f"Function {self.name!r} is unknown; choose one of: {known}.")
        allowed = dict(self.recipe.options)
        for key, _ in self.options:
            if key not in allowed:
                names = ", ".join(allowed) or "no options"
                raise DiagramError(f"Function {self.name!r} takes {names}, got option {key!r}.")

    @property
    def recipe(self) -> Recipe:
        """The recipe by which the function is written."""
        return RECIPES[self.name]

    @property
    def normalizes(self) -> bool:
        """Whether it reduces over some legs, so that `Region.over` must name them."""
        return self.recipe.normalizes

    def option(self, key: str) -> float | str:
        """The value of an option, or its default."""
        return (dict(self.recipe.options) | dict(self.options))[key]


# --- What a diagram is made of: indices, nodes, convolutions and regions --------------------------


class IndexKind(StrEnum):
    """What an index counts; decides the colour of its wire."""

    GENERIC = "generic"
    FEATURE = "feature"
    SEQUENCE = "sequence"
    HEAD = "head"
    RANK = "rank"
    BATCH = "batch"
    SPACE = "space"


class Role(StrEnum):
    """What a tensor is for; decides its shape and whether its entries are counted.

    A buffer is stored but not learned. An operation is no tensor: it stands in the picture of a
    call or of a module, between the arrays that are taken and those that are made.
    """

    DATA = "data"
    PARAMETER = "parameter"
    CORE = "core"
    BUFFER = "buffer"
    CONSTANT = "constant"
    RESULT = "result"
    OPERATION = "operation"


PARAMETER_ROLES = (Role.PARAMETER, Role.CORE)


@dataclass(frozen=True)
class Index:
    """One wire. Indices that share a `symbol` share a size; `label` is TeX without dollars."""

    name: str
    size: int | None = None
    symbol: str | None = None
    kind: IndexKind = IndexKind.GENERIC
    label: str | None = None

    @property
    def tex(self) -> str:
        """The label of the wire, TeX."""
        return self.label or self.symbol or self.name


@dataclass(frozen=True)
class Node:
    """One tensor; `indices` are its axes in order, and may repeat (a diagonal or a trace).

    Args:
        name: its identity in the diagram.
        indices: one index name per axis.
        role: what it is for.
        label: TeX without dollars; by default the name in bold.
        array: the array that holds its entries, by default `name`; nodes that share an array
            are counted once. The array is reshaped to the sizes of `indices`.
        rows: take only these rows (start, stop) of the array before reshaping.
        is_one_hot: the array holds integers, and the last index runs over their values.
        narrow_side: for an isometry, the index on its small side (drawn as a triangle).
        fill: for a constant, the value of every entry.
    """

    name: str
    indices: tuple[str, ...]
    role: Role = Role.PARAMETER
    label: str | None = None
    array: str | None = None
    rows: tuple[int, int] | None = None
    is_one_hot: bool = False
    narrow_side: str | None = None
    fill: float = 1.0

    @property
    def source(self) -> str:
        """Name of the array that holds the entries."""
        return self.array or self.name

    @property
    def tex(self) -> str:
        """The label of the node, TeX."""
        return self.label or rf"\mathbf{{{self.name}}}"


@dataclass(frozen=True)
class Convolution:
    r"""Joins legs `input` and `kernel` into leg `output`, as PyTorch does (cross-correlation).

    .. math:: h = \text{stride}\cdot h' + \text{dilation}\cdot k - \text{padding}_0

    with h on `input`, k on `kernel`, h' on `output`. `padding` is (before, after).
    """

    name: str
    input: str
    kernel: str
    output: str
    stride: int = 1
    padding: tuple[int, int] = (0, 0)
    dilation: int = 1
    padding_mode: str = "zeros"

    @property
    def indices(self) -> tuple[str, str, str]:
        """Input, kernel and output leg."""
        return (self.input, self.kernel, self.output)

    def output_size(self, input_size: int, kernel_size: int) -> int:
        """Length of the output leg; zero or less when the kernel does not fit."""
        reach = self.dilation * (kernel_size - 1) + 1
        return (input_size + sum(self.padding) - reach) // self.stride + 1


@dataclass(frozen=True)
class Region:
    """A barrier: members are contracted, scaled, masked, then sent through `function`.

    Args:
        name: its identity in the diagram; elsewhere it is used like a tensor.
        members: names of nodes, convolutions and regions inside.
        function: what is applied to the finished value.
        over: the legs that the function normalizes; they must leave the region.
        scale: an expression in symbols, for example "D**-0.5".
        causal: (query, key): entries whose key position is after the query position become -inf.
        label: TeX for its tag; by default made from the function.
    """

    name: str
    members: tuple[str, ...]
    function: Function
    over: tuple[str, ...] = ()
    scale: str | None = None
    causal: tuple[str, str] | None = None
    label: str | None = None
