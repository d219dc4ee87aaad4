"""The functions a barrier may apply once everything inside it is contracted."""

import math
from dataclasses import dataclass

from rankscope.errors import DiagramError


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
        """How it is written."""
        return RECIPES[self.name]

    @property
    def normalizes(self) -> bool:
        """Whether it reduces over some legs, so that `Region.over` must name them."""
        return self.recipe.normalizes

    def option(self, key: str) -> float | str:
        """The value of an option, or its default."""
        return (dict(self.recipe.options) | dict(self.options))[key]
