"""Every error this package raises on purpose."""

import math
from functools import partial
from unicodedata import category


class RankscopeError(Exception):
    """Base class, so that callers can catch all of ours at once.

    `exit_code` is what the command line returns: 2 when the request is wrong, 1 when it failed.
    """

    exit_code = 2


class RequestError(RankscopeError, ValueError):
    """A command was asked for something that it cannot understand."""


class BudgetError(RankscopeError, ValueError):
    """A request would take more memory or time than it may; the message says what fits."""


class DiagramError(RankscopeError, ValueError):
    """Nodes, indices, regions and convolutions do not fit together."""


class SizeError(RankscopeError, ValueError):
    """A size is missing, contradictory, or not a positive integer."""


class EinsumError(RankscopeError, ValueError):
    """An einsum string cannot be read, or a diagram cannot be written as one.

    `position` is that of the letter in the string, where one letter is at fault.
    """

    position: int | None = None


class FamilyError(RankscopeError, ValueError):
    """A family of diagrams is unknown, or was asked for with settings that do not fit."""


class UnsupportedModuleError(RankscopeError, TypeError):
    """A PyTorch module cannot be written as a tensor diagram; the message says which and why."""


class BoundError(RankscopeError, ValueError):
    """A bound was asked for sizes that its theorem does not cover."""


class ContractionError(RankscopeError, ValueError):
    """A contraction cannot be carried out in the order asked for."""


class LayoutError(RankscopeError, ValueError):
    """A picture was asked for with hints that do not fit the diagram."""


class ImportPathError(RankscopeError, ImportError):
    """A `package.module:factory` path does not lead to a module."""


class DocumentError(RankscopeError, ValueError):
    """Plain data are not what a reader wants; `place` is where, as keys and positions."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.place: tuple[str | int, ...] = ()


class OutputError(RankscopeError, OSError):
    """A file cannot be written."""


class MissingExtraError(RankscopeError, ImportError):
    """An optional package is needed that is not installed."""

    def __init__(self, *, what: str, package: str, extra: str) -> None:
        super().__init__(
            f"{what} needs {package}, which is not installed. "
            f"Install it with: pip install 'rankscope[{extra}]'"
        )
        self.package = package
        self.extra = extra
        self._remade = partial(type(self), what=what, package=package, extra=extra)

    def __reduce__(self) -> tuple[object, tuple[()]]:
        """So that a worker process can hand it over."""
        return self._remade, ()


class FactoryError(RankscopeError, RuntimeError):
    """A user's factory raised an error of its own."""

    exit_code = 1


class PartitionError(RankscopeError, ValueError):
    """A partition is malformed, or does not fit the array it is used on."""


class TemplateError(RankscopeError, ValueError):
    """Templates do not fit the positions, or a function of them gives no usable values."""


class PrimeError(RankscopeError, ValueError):
    """A number is no prime, or a prime too large for the arithmetic."""


class MatrixError(RankscopeError, ValueError):
    """A matrix is not of the kind, shape or rank that a computation needs."""


class CertificateError(RankscopeError, ValueError):
    """A file is no certificate, or one that says things that cannot be."""


class MetricError(RankscopeError, ValueError):
    """A distance, its radius, its weights or its measure do not fit what they are used on."""


class FunctionError(RankscopeError, ValueError):
    """A function that is to be split gives no usable values, or its inputs do not fit."""


class MeasurementError(RankscopeError, ValueError):
    """A rank was asked to be measured in a way that does not fit."""


class CheckpointError(RankscopeError, ValueError):
    """A folder is no checkpoint, or that of another measurement."""


class InUseError(CheckpointError):
    """A folder is used by another process."""


class ConfigurationError(RankscopeError, ValueError):
    """A configuration is of an unknown family, or lacks or contradicts what its family needs."""


class UnknownFamilyError(ConfigurationError):
    """A configuration is of no family that is read here; another reader may know it."""


class ModelFileError(RankscopeError, ValueError):
    """A model cannot be opened: its files are missing, corrupt, unsafe, or of an unknown kind."""


class DecompositionError(RankscopeError, ValueError):
    """A tensor, or an option, is not of the kind that a decomposition needs."""


class LayerError(RankscopeError, ValueError):
    """A layer cannot be built, read or run as asked: sizes, ranks, padding or groups do not fit."""


class CompressionError(RankscopeError, ValueError):
    """A model cannot be compressed, saved or loaded as asked."""


class DataError(RankscopeError, ValueError):
    """A data set is missing, corrupt, or not of the kind that is needed."""


class TrainingError(RankscopeError, ValueError):
    """A run was asked for with settings that do not fit, or its numbers are no longer finite."""


class ExperimentError(RankscopeError, ValueError):
    """An experiment is unknown, or its folder belongs to another one."""


class RobustnessError(RankscopeError, ValueError):
    """A perturbation, its radius or a model does not fit, or what was certified is not true."""


class GeneralizationError(RankscopeError, ValueError):
    """A sample, a margin or a network does not fit a bound, or what was bounded is not true."""


class PlanError(RankscopeError, ValueError):
    """A model was asked to be planned for a budget or with constraints that no shape meets."""


class ConstructionError(RankscopeError, ValueError):
    """A network cannot be built by hand, read or cut into regions as asked."""


class MovedNameError(RankscopeError, AttributeError):
    """A name of an earlier version was asked for, which is somewhere else now."""


def printable(text: str, *, at_most: int = 200) -> str:
    r"""A text from a stranger, for a terminal or a message: in one line, cut, and inert.

    Whatever does not show as itself is written out: control characters, which a terminal obeys,
    marks that turn the direction of writing, and halves of characters that cannot be encoded.

    Example:
        >>> printable("\x1b[2Jname\n"), printable("Gewicht\u202e"), printable("a" * 9, at_most=4)
        ('\\x1b[2Jname\\n', 'Gewicht\\u202e', 'aaa…')
    """
    return inert(text if len(text) <= at_most else f"{text[: at_most - 1]}…")


def inert(text: str, *, keep: str = "") -> str:
    r"""A text in which whatever does not show as itself is written out; `keep` stays as it is.

    Example:
        >>> inert("two\nlines\x1b", keep="\n")
        'two\nlines\\x1b'
    """
    if text.isprintable():
        return text
    return "".join(
        character
        if character.isprintable() or character in keep or category(character) == "Zs"
        else character.encode("unicode_escape").decode()
        for character in text
    )


def readable(count: int) -> str:
    """A count with its digits, or only how many there are if nobody would read them.

    Example:
        >>> readable(31460), readable(3**96)
        ('31,460', 'about 10^46')
    """
    return f"{count:,}" if count < 10**18 else f"about 10^{math.log10(count):.0f}"


class TooLargeError(RankscopeError, ValueError):
    """An exact computation was asked for that would not fit in memory."""

    def __init__(self, *, what: str, entries: int, limit: int, instead: str) -> None:
        super().__init__(
            f"{what} needs {readable(entries)} entries, over the limit of {readable(limit)}. "
            f"{instead}"
        )
        self.entries = entries
        self.limit = limit
        self._remade = partial(type(self), what=what, entries=entries, limit=limit, instead=instead)

    def __reduce__(self) -> tuple[object, tuple[()]]:
        """So that a worker process can hand it over."""
        return self._remade, ()
