"""Scale factors such as "D**-0.5", read by a tiny grammar and never by `eval`."""

import ast
import operator
from collections.abc import Callable, Mapping

from rankscope.errors import DiagramError, SizeError

OPERATIONS: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
}

LONGEST = 200


def scale_symbols(expression: str) -> tuple[str, ...]:
    """The symbols a scale uses, in order of appearance.

    Example:
        >>> scale_symbols("(D*H)**-0.5")
        ('D', 'H')
    """
    found = [part.id for part in ast.walk(_parse(expression)) if isinstance(part, ast.Name)]
    return tuple(dict.fromkeys(found))


def evaluate_scale(expression: str, sizes: Mapping[str, int | None]) -> float:
    """The number a scale stands for.

    Example:
        >>> evaluate_scale("D**-0.5", {"D": 64})
        0.125

    Raises:
        DiagramError: if the text is not made of symbols, numbers, + - * / ** and parentheses.
        SizeError: if a symbol has no size.
    """
    return _value(_parse(expression), sizes, expression)


def _parse(expression: str) -> ast.expr:
    # Python's parser runs out of stack on long input, and so would we on deep nesting.
    if len(expression) > LONGEST:
        raise DiagramError(
            f"Scale {expression[:20]!r}… has {len(expression):,} characters; "
            f"at most {LONGEST} can be read."
        )
    try:
        tree = ast.parse(expression, mode="eval").body
    except (SyntaxError, ValueError) as error:
        raise DiagramError(f"Scale {expression!r} is not an arithmetic expression.") from error
    for part in ast.walk(tree):
        if not isinstance(
            part,
            ast.BinOp | ast.UnaryOp | ast.USub | ast.Name | ast.Load | ast.Constant | ast.operator,
        ):
            raise DiagramError(
                f"Scale {expression!r} may hold symbols, numbers, + - * / ** and parentheses, "
                f"got {type(part).__name__}."
            )
    return tree


def _value(part: ast.expr, sizes: Mapping[str, int | None], expression: str) -> float:
    match part:
        case ast.Constant(value=int() | float() as number):
            return float(number)
        case ast.Name(id=symbol):
            size = sizes.get(symbol)
            if size is None:
                raise SizeError(f"Scale {expression!r} needs a size for {symbol}; give {symbol}=….")
            return float(size)
        case ast.UnaryOp(operand=inner):
            return -_value(inner, sizes, expression)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATIONS:
            try:
                value = OPERATIONS[type(op)](
                    _value(left, sizes, expression), _value(right, sizes, expression)
                )
            except (ZeroDivisionError, OverflowError) as error:
                raise DiagramError(f"Scale {expression!r} has no finite value.") from error
            return _real(value, expression)
        case _:
            raise DiagramError(f"Scale {expression!r} holds {ast.unparse(part)!r}, not a number.")


def _real(value: float | complex, expression: str) -> float:
    if isinstance(value, complex):
        raise DiagramError(f"Scale {expression!r} is not a real number.")
    return float(value)
