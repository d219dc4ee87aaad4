"""From the word on the command line to a diagram, sum or network."""

import json
from dataclasses import dataclass
from pathlib import Path

from rankscope.cli.factories import call_factory
from rankscope.cli.options import read_assignments, read_shape
from rankscope.diagrams.diagram import Diagram
from rankscope.diagrams.network import Drawable, Network, Sum, drawable_with_sizes
from rankscope.errors import ImportPathError, RequestError


@dataclass(frozen=True)
class Request:
    """What a command was asked about, still as text."""

    what: str
    settings: dict[str, str]
    input_shapes: tuple[tuple[int, ...], ...] = ()
    parameters: tuple[int, ...] = ()

    @classmethod
    def of(
        cls,
        what: str,
        settings: list[str] | None,
        sizes: list[str] | None,
        inputs: list[str] | None = None,
        parameters: list[int] | None = None,
    ) -> "Request":
        """Read the shared options."""
        shapes = tuple(read_shape(text) for text in inputs or ())
        return cls(what, read_assignments(settings, sizes), shapes, tuple(parameters or ()))

    def sizes(self) -> dict[str, int]:
        """The settings, all of which must be sizes."""
        found = {}
        for name, text in self.settings.items():
            try:
                found[name] = int(text)
            except ValueError as error:
                raise RequestError(
                    f"The size of {name} must be a positive integer, got {text!r}."
                ) from error
        return found


def resolve(request: Request) -> Drawable:
    """The drawable a request names: a family, an import path, an einsum, or a saved file.

    Raises:
        RankscopeError: if it names none of them, or does not fit.
    """
    from rankscope.diagrams.families import FAMILIES, build_family

    what = request.what
    if what not in FAMILIES and ":" in what:
        return _read_module(request)
    if what not in FAMILIES and ("," in what or "->" in what):
        return _read_einsum(request)
    _refuse(request, kind="file" if what.endswith(".json") else "family")
    if what.endswith(".json"):
        return drawable_with_sizes(_read_file(Path(what)), request.sizes())
    return build_family(what, request.settings)


def _refuse(request: Request, *, kind: str) -> None:
    for option, given in (("--input", request.input_shapes), ("--parameter", request.parameters)):
        if given:
            raise RequestError(
                f"{option} does not apply to the {kind} {request.what!r}; leave it out."
            )


def _read_einsum(request: Request) -> Diagram:
    from rankscope.diagrams.einsum import from_einsum

    if request.input_shapes:
        raise RequestError(f"--input does not apply to the einsum {request.what!r}; use --size.")
    return from_einsum(
        request.what, sizes=request.sizes(), parameters=request.parameters, name=request.what
    )


def _read_file(path: Path) -> Drawable:
    from rankscope.diagrams.serialization import from_dict

    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise RequestError(f"Cannot read {path}: {error.strerror}.") from error
    except (ValueError, RecursionError) as error:
        raise RequestError(f"{path} is not JSON: {error}.") from error
    return from_dict(document)


def _read_module(request: Request) -> Drawable:
    found = call_factory(request.what)
    if isinstance(found, Diagram | Sum | Network):
        _refuse(request, kind="diagram")
        return drawable_with_sizes(found, request.sizes())
    from torch import nn

    from rankscope.reading import from_module

    if not isinstance(found, nn.Module):
        raise ImportPathError(
            f"{request.what} gives a {type(found).__name__}, wanted a torch.nn.Module or a diagram."
        )
    if request.settings or request.parameters:
        raise RequestError(
            f"--set, --size and --parameter do not apply to the module {request.what!r}."
        )
    if not request.input_shapes:
        raise RequestError(
            f"{request.what} is a module: give the shape of its input, "
            "for example --input 1,3,32,32."
        )
    shapes = request.input_shapes
    return from_module(found, shapes[0] if len(shapes) == 1 else shapes)
