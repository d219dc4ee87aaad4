"""Which functions and methods of tensors can be read, and how."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rankscope.diagrams.reading import arithmetic, views
from rankscope.diagrams.reading.activation import activate, normalize
from rankscope.diagrams.reading.attention import read_scaled_dot_product
from rankscope.diagrams.reading.calls import Call, ModuleReader, Result
from rankscope.diagrams.reading.linear import embed, linear
from rankscope.diagrams.reading.normalization import layer_norm
from rankscope.diagrams.reading.shapes import flattened
from rankscope.diagrams.reading.values import Value
from rankscope.errors import UnsupportedModuleError


@dataclass(frozen=True)
class Operation:
    """The names of a function's arguments, in order, and what reads a call of it.

    A name that starts with "*" takes all that follow.
    """

    arguments: tuple[str, ...]
    reader: ModuleReader

    def bind(self, given: tuple[Any, ...], options: Mapping[str, Any]) -> dict[str, Any]:
        """Arguments by name.

        Raises:
            UnsupportedModuleError: if there are more than we know.
        """
        bound: dict[str, Any] = {}
        for place, name in enumerate(self.arguments):
            if name.startswith("*"):
                rest = tuple(given[place:])
                return bound | ({name[1:]: rest} if rest else {}) | dict(options)
            if place < len(given):
                bound[name] = given[place]
        unknown = [name for name in options if name not in self.arguments]
        if len(given) > len(self.arguments) or unknown:
            told = ", ".join(unknown) or f"{len(given)} arguments"
            raise UnsupportedModuleError(
                f"it was given {told}, but only {', '.join(self.arguments)} are read"
            )
        return bound | dict(options)


def _activation(name: str, *options: str) -> Operation:
    def read(call: Call) -> Value:
        given = {key: call.arguments[key] for key in options if key in call.arguments}
        return activate(call, name, given, call.value("input"))

    return Operation(("input", *options, "inplace"), read)


def _normalization(name: str) -> Operation:
    def read(call: Call) -> Value:
        call.refuse("dtype")
        return normalize(call, name, call.value("input"), call.arguments.get("dim"))

    return Operation(("input", "dim", "_stacklevel", "dtype"), read)


def _read_linear(call: Call) -> Value:
    bias = None if call.arguments.get("bias") is None else call.value("bias")
    return linear(call, call.value("input"), call.value("weight"), bias)


def _read_embedding(call: Call) -> Value:
    call.refuse("max_norm")
    return embed(call, call.value("weight"))


def _read_layer_norm(call: Call) -> Value:
    weight, bias = call.arguments.get("weight"), call.arguments.get("bias")
    shape = tuple(call.arguments["normalized_shape"])
    return layer_norm(call, shape, weight, bias, float(call.option("eps", 1e-5)))


def _read_dropout(call: Call) -> Value:
    is_training, probability = call.arguments.get("training", True), call.option("p", 0.5)
    if is_training and probability > 0.0:
        call.complain(f"p={probability} is random in training mode; call module.eval()")
    return call.value("input")


def _read_flatten(call: Call) -> Value:
    start, end = call.option("start_dim", 0), call.option("end_dim", -1)
    return flattened(call, call.value("input"), start, end)


def _refused(reason: str) -> Operation:
    def read(call: Call) -> Result:
        raise UnsupportedModuleError(reason)

    return Operation(("*given",), read)


_PAIR = ("input", "other", "alpha")
_REDUCTION = ("input", "dim", "keepdim", "dtype")
_SAME = Operation(("input", "*rest"), views.read_same)
_NO_MAXIMUM = _refused("a maximum or minimum is not a contraction")

# One visible table: the name of a function or method, and how it is read.
OPERATIONS: Mapping[str, Operation] = {
    "add": Operation(_PAIR, arithmetic.read_add),
    "sub": Operation(_PAIR, arithmetic.read_subtract),
    "mul": Operation(("input", "other"), arithmetic.read_multiply),
    "div": Operation(("input", "other", "rounding_mode"), arithmetic.read_divide),
    "neg": Operation(("input",), arithmetic.read_negate),
    "pow": Operation(("input", "exponent"), arithmetic.read_power),
    "square": Operation(("input",), arithmetic.read_square),
    "matmul": Operation(("input", "other"), arithmetic.read_matrix_product),
    "einsum": Operation(("*operands",), arithmetic.read_einsum),
    "mean": Operation(_REDUCTION, arithmetic.read_mean),
    "sum": Operation(_REDUCTION, arithmetic.read_sum),
    "relu": _activation("relu"),
    "relu6": _activation("relu6"),
    "leaky_relu": _activation("leaky_relu", "negative_slope"),
    "elu": _activation("elu", "alpha"),
    "gelu": _activation("gelu", "approximate"),
    "silu": _activation("silu"),
    "tanh": _activation("tanh"),
    "sigmoid": _activation("sigmoid"),
    "softplus": _activation("softplus", "beta", "threshold"),
    "exp": _activation("exp"),
    "softmax": _normalization("softmax"),
    "log_softmax": _normalization("log_softmax"),
    "linear": Operation(("input", "weight", "bias"), _read_linear),
    "embedding": Operation(
        ("input", "weight", "padding_idx", "max_norm", "norm_type", "scale_grad_by_freq", "sparse"),
        _read_embedding,
    ),
    "layer_norm": Operation(
        ("input", "normalized_shape", "weight", "bias", "eps"), _read_layer_norm
    ),
    "dropout": Operation(("input", "p", "training", "inplace"), _read_dropout),
    "scaled_dot_product_attention": Operation(
        ("query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa"),
        read_scaled_dot_product,
    ),
    "reshape": Operation(("input", "*shape"), views.read_reshape),
    "flatten": Operation(("input", "start_dim", "end_dim"), _read_flatten),
    "permute": Operation(("input", "*dims"), views.read_permute),
    "transpose": Operation(("input", "dim0", "dim1"), views.read_transpose),
    "t": Operation(("input",), views.read_matrix_transpose),
    "unsqueeze": Operation(("input", "dim"), views.read_unsqueeze),
    "squeeze": Operation(("input", "dim"), views.read_squeeze),
    "expand": Operation(("input", "*sizes"), views.read_expand),
    "getitem": Operation(("input", "index"), views.read_item),
    "narrow": Operation(("input", "dim", "start", "length"), views.read_narrow),
    "select": Operation(("input", "dim", "index"), views.read_select),
    "chunk": Operation(("input", "chunks", "dim"), views.read_chunk),
    "split": Operation(("input", "split_size_or_sections", "dim"), views.read_split),
    "unbind": Operation(("input", "dim"), views.read_unbind),
    "masked_fill": Operation(("input", "mask", "value"), views.read_masked_fill),
    "contiguous": _SAME,
    "clone": Operation(("input", "*rest"), views.read_clone),
    "cat": _refused("joining tensors end to end is not a contraction"),
    "stack": _refused("joining tensors end to end is not a contraction"),
    "max": _NO_MAXIMUM,
    "amax": _NO_MAXIMUM,
    "min": _NO_MAXIMUM,
    "max_pool1d": _NO_MAXIMUM,
    "max_pool2d": _NO_MAXIMUM,
    "max_pool3d": _NO_MAXIMUM,
    "topk": _refused("a choice by size is not a contraction"),
}

# Other names for the same thing.
ALIASES: Mapping[str, str] = {
    **dict.fromkeys(("subtract", "isub"), "sub"),
    "iadd": "add",
    **dict.fromkeys(("multiply", "imul"), "mul"),
    **dict.fromkeys(("truediv", "divide", "true_divide", "itruediv"), "div"),
    "negative": "neg",
    **dict.fromkeys(("bmm", "mm", "mv", "dot", "imatmul"), "matmul"),
    "view": "reshape",
    **dict.fromkeys(("swapaxes", "swapdims", "mT"), "transpose"),
    "T": "t",
    **dict.fromkeys(("detach", "to", "float", "double", "type_as"), "contiguous"),
    **dict.fromkeys(("concat", "concatenate", "hstack", "vstack"), "cat"),
    **dict.fromkeys(("feature_dropout", "dropout1d", "dropout2d", "dropout3d"), "dropout"),
    "split_with_sizes": "split",
    "ipow": "pow",
}


IN_PLACE = ("iadd", "isub", "imul", "itruediv", "ipow", "imatmul")


def operation_name(target: object) -> str:
    """The name of a function or method, without underscores and package.

    Example:
        >>> import operator
        >>> operation_name(operator.iadd), operation_name("view"), operation_name("relu_")
        ('add', 'reshape', 'relu')
    """
    text = target if isinstance(target, str) else getattr(target, "__name__", repr(target))
    plain = text.strip("_")
    return ALIASES.get(plain, plain)


def is_in_place(target: object, options: Mapping[str, Any]) -> bool:
    """Whether a call changes its first argument: `relu_`, `+=`, or `inplace=True`.

    Example:
        >>> is_in_place("relu_", {}), is_in_place("relu", {"inplace": True})
        (True, True)
    """
    name = target if isinstance(target, str) else getattr(target, "__name__", "")
    is_method = name.endswith("_") and not name.endswith("__")
    return is_method or name in IN_PLACE or bool(options.get("inplace", False))
