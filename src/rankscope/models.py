"""MODEL: one word for everything that a command can be given.

`open_model` takes the word (a name of the catalogue, an einsum, a path, `package.module:factory`)
or a module, and gives a `Model`: a frozen value that says its kind and has what that kind has.
Everything it has is made when it is first asked for, so that kinds without torch never load it.
"""

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

from rankscope.architectures.catalogue import CATALOGUE as EXACT_NETWORKS
from rankscope.architectures.catalogue import read_settings
from rankscope.architectures.models.catalogue import BUILT_IN, BuiltIn, build, build_trained
from rankscope.errors import FactoryError, ImportPathError, RankscopeError, RequestError

if TYPE_CHECKING:
    from torch import nn

    from rankscope.architectures.network import PolynomialNetwork
    from rankscope.auditing.sources import OpenedModel, TensorSource
    from rankscope.diagrams.families import Family
    from rankscope.diagrams.network import Drawable

Shape = tuple[int, ...]

# What each command works on; one of several is enough.
_NEEDED = {
    "draw": ("diagram",),
    "cost": ("diagram",),
    "cut": ("diagram",),
    "code": ("diagram",),
    "audit": ("weights", "configuration"),
    "compress": ("trained module",),
    "certify": ("trained module",),
    "generalization": ("trained module",),
    "rank": ("exact network", "function"),
    "bounds": ("exact network",),
}


@dataclass(frozen=True)
class Entry:
    """What one name stands for: a command takes from it what it needs.

    Args:
        name: as the command line says it.
        family: a diagram with symbols for sizes.
        is_exact: whether there is a network of that name whose rank can be measured exactly.
        built_in: a trainable network.
    """

    name: str
    family: "Family | None" = None
    is_exact: bool = False
    built_in: BuiltIn | None = None

    @property
    def kind(self) -> str:
        """In words."""
        if self.built_in is not None:
            return "built-in network"
        if self.family is None:
            return "exact network"
        return "family of diagrams with an exact network" if self.is_exact else "family of diagrams"


def catalogue() -> dict[str, Entry]:
    """Every name with its one entry: built-in networks, exact networks, families of diagrams."""
    from rankscope.diagrams.families import FAMILIES

    names = dict.fromkeys((*BUILT_IN, *EXACT_NETWORKS, *FAMILIES))
    return {
        name: Entry(name, FAMILIES.get(name), name in EXACT_NETWORKS, BUILT_IN.get(name))
        for name in names
    }


@dataclass(frozen=True, eq=False)
class Model(ABC):
    """Something that commands work on.

    Attributes:
        name: what it was opened from, in words.
    """

    name: str

    @property
    @abstractmethod
    def kind(self) -> str:
        """In words, without an article."""

    @property
    @abstractmethod
    def has(self) -> tuple[str, ...]:
        """Which of the parts of a model it has, in words."""

    @property
    def commands(self) -> list[str]:
        """The commands that can use it."""
        return [name for name, parts in _NEEDED.items() if set(parts) & set(self.has)]

    def require_for(self, command: str) -> None:
        """Refuse a model that a command cannot use, and name the commands that can.

        Raises:
            RequestError: if it has nothing that the command works on.
        """
        if command not in self.commands:
            raise self._lacks(_NEEDED[command], who=command)

    @property
    def diagram(self) -> "Drawable":
        """As a tensor diagram, a sum of them, or a network of them."""
        raise self._lacks(("diagram",))

    @property
    def picture(self) -> "Drawable":
        """The diagram; where sizes change its shape and none are given, that of an example."""
        return self.diagram

    def outline(self, depth: int) -> "Drawable":
        """The diagram with one box for every module that is nested `depth` deep."""
        del depth
        if "diagram" in self.has:
            raise RequestError(
                f"--depth draws the outline of nested modules, but {self.name!r} is "
                f"{_with_article(self.kind)}; leave it out, and give sizes with --set."
            )
        raise self._lacks(("diagram",))

    @property
    def network(self) -> "PolynomialNetwork":
        """The network whose rank can be measured exactly."""
        raise self._lacks(("exact network",))

    @property
    def module(self) -> "nn.Module":
        """The network with its trained weights, in inference mode."""
        raise self._lacks(("trained module",))

    @property
    def untrained(self) -> "nn.Module":
        """The network with whatever weights it starts with."""
        return self.module

    @property
    def example(self) -> Any:
        """One batch that the module takes, as tensors or shapes; None if nobody knows one."""
        return None

    @property
    def function(self) -> Callable[..., Any]:
        """What is evaluated, where nothing but its values is needed."""
        raise self._lacks(("function",))

    @property
    def configuration(self) -> Mapping[str, object] | None:
        """The document of its `config.json`, or None."""
        return self._opened().config

    @property
    def weights(self) -> "TensorSource | None":
        """Its tensors, read one at a time; None if only the configuration is known."""
        return self._opened().tensors

    @property
    def data_set(self) -> str | None:
        """The data set that it was made for, by name; None if nobody knows."""
        return None

    @property
    def takes_pixels(self) -> bool:
        """Whether its inputs are the entries of the data as they are, not scaled as in training."""
        return True

    @property
    def audited(self) -> object:
        """What an audit opens: a path or a module."""
        raise self._lacks(("weights", "configuration"))

    def _opened(self) -> "OpenedModel":
        from rankscope.auditing.sources import open_model as open_weights

        return open_weights(self.audited)

    def _lacks(self, parts: Sequence[str], who: str = "open_model") -> RankscopeError:
        needed = " or ".join(_with_article(part) for part in parts)
        has = " and ".join(_with_article(part) for part in self.has) or "nothing of use"
        can = ", ".join(self.commands) or "no command"
        return RequestError(
            f"{who} needs {needed}, but {self.name!r} is {_with_article(self.kind)}, which has "
            f"{has}. It can be given to: {can}."
        )


def _with_article(words: str) -> str:
    if words in ("weights",):
        return words
    return f"{'an' if words[0] in 'aeiou' else 'a'} {words}"


@dataclass(frozen=True, eq=False)
class NamedDiagram(Model):
    """A family of diagrams, an exact network, or both under one name.

    Args:
        entry: of the catalogue.
        settings: as text, by the words of the family or of the exact network.
    """

    entry: Entry
    settings: Mapping[str, str]

    @property
    def kind(self) -> str:
        return self.entry.kind

    @property
    def has(self) -> tuple[str, ...]:
        return ("diagram", "exact network") if self.entry.is_exact else ("diagram",)

    @cached_property
    def diagram(self) -> "Drawable":
        """Of the family; of an exact network without one, its own."""
        if self.entry.family is not None:
            from rankscope.diagrams.families import build_family

            return build_family(self.name, self.settings)
        return self.network.diagram()

    @property
    def picture(self) -> "Drawable":
        """Sizes that nobody chose are those of the example in the catalogue."""
        if self.settings or self.entry.family is not None:
            return self.diagram
        entry = EXACT_NETWORKS[self.name]
        return entry.network_class()(**entry.example).diagram()

    @cached_property
    def network(self) -> "PolynomialNetwork":
        """Built from the settings, all of which must be the exact network's."""
        self.require_for("rank")
        family = self.entry.family
        words = {} if family is None else {s.name: s.alias for s in family.settings if s.alias}
        settings = {words.get(word, word): value for word, value in self.settings.items()}
        arguments = read_settings(self.name, settings)
        return EXACT_NETWORKS[self.name].network_class()(**arguments)


@dataclass(frozen=True, eq=False)
class GivenDiagram(Model):
    """An einsum, or a diagram that was saved as JSON.

    Args:
        make: reads it.
        word: for its kind.
    """

    make: "Callable[[], Drawable]"
    word: str

    @property
    def kind(self) -> str:
        return self.word

    @property
    def has(self) -> tuple[str, ...]:
        return ("diagram",)

    @cached_property
    def diagram(self) -> "Drawable":
        return self.make()


@dataclass(frozen=True, eq=False)
class BuiltInNetwork(Model):
    """A trainable network of the catalogue.

    Args:
        entry: of the catalogue.
        file: with weights; None for the published ones.
        folder: where published weights are looked for; None for those of RANKSCOPE_DATA.
        inputs: shapes to use instead of the usual one.
    """

    entry: BuiltIn
    file: Path | None
    folder: Path | None
    inputs: tuple[Shape, ...] = ()

    @property
    def kind(self) -> str:
        return "built-in network"

    @property
    def has(self) -> tuple[str, ...]:
        return ("trained module", "diagram", "weights")

    @cached_property
    def module(self) -> "nn.Module":
        return build_trained(self.name, weights=self.file, data=self.folder)

    @cached_property
    def untrained(self) -> "nn.Module":
        return build(self.name).eval() if self.file is None else self.module

    @cached_property
    def example(self) -> Any:
        if not self.inputs:
            return self.entry.example()
        import torch

        dtype = torch.long if self.entry.takes_tokens else None
        return tuple(torch.ones(shape, dtype=dtype) for shape in self.inputs)

    @cached_property
    def diagram(self) -> "Drawable":
        return _read(self.untrained, self.example)

    def outline(self, depth: int) -> "Drawable":
        return _read(self.untrained, self.example, depth)

    @property
    def data_set(self) -> str | None:
        return self.entry.data_set

    @property
    def takes_pixels(self) -> bool:
        return self.entry.takes_pixels

    @property
    def audited(self) -> object:
        if self.name == "transformer" and self.file is None:
            from rankscope.auditing.embedded import embedded_model

            return embedded_model(self.name)  # with its configuration
        return self.module


@dataclass(frozen=True, eq=False)
class CompressedFolder(Model):
    """A folder that `compress` wrote.

    Args:
        folder: with `plan.json` and `model.safetensors`.
        base: the built-in network that it was made from; None for another one.
        inputs: shapes to use instead of the usual one.
    """

    folder: Path
    base: BuiltInNetwork | None

    @property
    def kind(self) -> str:
        return "compressed model"

    @property
    def has(self) -> tuple[str, ...]:
        # The folder holds no code: a model of one's own is loaded with `rankscope.load(…, into=…)`.
        return ("weights",) if self.base is None else ("trained module", "diagram", "weights")

    @cached_property
    def module(self) -> "nn.Module":
        from rankscope.compression.loading import load

        return load(self.folder)

    @property
    def example(self) -> Any:
        return None if self.base is None else self.base.example

    @cached_property
    def diagram(self) -> "Drawable":
        self.require_for("draw")
        return _read(self.module, self.example)

    def outline(self, depth: int) -> "Drawable":
        self.require_for("draw")
        return _read(self.module, self.example, depth)

    @property
    def data_set(self) -> str | None:
        return None if self.base is None else self.base.data_set

    @property
    def takes_pixels(self) -> bool:
        return self.base is None or self.base.takes_pixels

    @property
    def audited(self) -> object:
        return self.folder if self.base is None else self.module


@dataclass(frozen=True, eq=False)
class ModelFiles(Model):
    """A configuration, weights, or a folder with both, as Hugging Face writes them."""

    path: Path

    @cached_property
    def opened(self) -> "OpenedModel":
        """The files, opened but not read."""
        from rankscope.auditing.sources import open_model as open_weights

        return open_weights(self.path)

    def _opened(self) -> "OpenedModel":
        return self.opened

    @property
    def kind(self) -> str:
        if self.path.is_dir():
            return "folder of a model"
        return "configuration" if self.opened.tensors is None else "file of weights"

    @property
    def has(self) -> tuple[str, ...]:
        parts = {"configuration": self.opened.config, "weights": self.opened.tensors}
        return tuple(name for name, part in parts.items() if part is not None)

    @property
    def audited(self) -> object:
        return self.path


@dataclass(frozen=True, eq=False)
class MadeObject(Model):
    """What a factory gives, or a module that the caller has: it is made when first asked for.

    Args:
        make: gives the module, diagram or function.
        settings: sizes, if it is a diagram.
        inputs: shapes of a module's inputs.
        parameters: which are refused, as nothing here has operands.
        file: weights to load into a module.
    """

    make: Callable[[], object]
    settings: Mapping[str, str]
    inputs: tuple[Shape, ...]
    parameters: tuple[int, ...]
    file: Path | None

    @cached_property
    def made(self) -> object:
        """The object itself, modules in inference mode and with their weights."""
        made = self.make()
        if _is_module(made) and self.file is not None:
            from rankscope.architectures.models.weight_files import load_weights, read_weights

            load_weights(made, read_weights(self.file), who=str(self.file))
        return made

    @property
    def kind(self) -> str:
        if _is_module(self.made):
            return "module"
        if _is_drawable(self.made):
            return "diagram"
        return "function" if callable(self.made) else type(self.made).__name__

    @property
    def has(self) -> tuple[str, ...]:
        if _is_module(self.made):
            from rankscope.architectures.network import PolynomialNetwork

            parts = ("trained module", "diagram", "weights", "function")
            is_exact = isinstance(self.made, PolynomialNetwork)
            return (*parts, "exact network") if is_exact else parts
        if _is_drawable(self.made):
            return ("diagram",)
        return ("function",) if callable(self.made) else ()

    def _lacks(self, parts: Sequence[str], who: str = "open_model") -> RankscopeError:
        if self.has:
            return super()._lacks(parts, who)
        return ImportPathError(
            f"{self.name} gives a {type(self.made).__name__}, wanted a torch.nn.Module or a "
            "diagram."
        )

    @property
    def module(self) -> "nn.Module":
        if not _is_module(self.made):
            raise self._lacks(("trained module",))
        return self.made

    @property
    def example(self) -> Any:
        return self.inputs or None

    @cached_property
    def diagram(self) -> "Drawable":
        if _is_drawable(self.made):
            from rankscope.diagrams.network import drawable_with_sizes

            _refuse(self.name, "diagram", self.inputs, self.parameters)
            return drawable_with_sizes(self.made, read_sizes(self.settings))
        return self._read(None)

    def outline(self, depth: int) -> "Drawable":
        return super().outline(depth) if _is_drawable(self.made) else self._read(depth)

    def _read(self, depth: int | None) -> "Drawable":
        if self.settings or self.parameters:
            raise RequestError(
                f"--set, --size and --parameter do not apply to the module {self.name!r}."
            )
        if not self.inputs:
            raise RequestError(
                f"{self.name} is a module: give the shape of its input, "
                "for example --input 1,3,32,32."
            )
        return _read(self.module, self.inputs, depth)

    @property
    def network(self) -> "PolynomialNetwork":
        if "exact network" not in self.has:
            raise self._lacks(("exact network",))
        return self.made  # type: ignore[return-value]

    @property
    def function(self) -> Callable[..., Any]:
        if not callable(self.made):
            raise self._lacks(("function",))
        return self.made

    @property
    def audited(self) -> object:
        return self.module


def open_model(
    what: "str | Path | nn.Module | Model",
    *,
    settings: Mapping[str, object] | None = None,
    inputs: Sequence[Shape] = (),
    parameters: Sequence[int] = (),
    weights: Path | str | None = None,
    data: Path | str | None = None,
) -> Model:
    """Find out what is meant, without loading or reading more than that takes.

    Args:
        what: a name (`digits`, `resnet20`, `attention`, `multi-head`, …: `rankscope models` lists
            them), an einsum, `package.module:factory`, a path (a folder or `config.json` as Hugging
            Face writes them, weights in `.safetensors` or `.pt`, a diagram saved as `.json`, a
            folder that `compress` wrote), a module, or a model that is open already.
        settings: sizes of a family of diagrams, an exact network or an einsum, by name.
        inputs: shapes of a module's inputs, one for each; built-in networks know their own.
        parameters: numbers of the operands of an einsum that are learned.
        weights: file with the weights of a built-in network or of what a factory makes.
        data: folder where published weights are looked for; None for those of RANKSCOPE_DATA.

    Example:
        >>> open_model("digits").kind, open_model("ij,jk->ik").kind
        ('built-in network', 'einsum')
        >>> open_model("multi-head", settings={"H": 12, "D": 64}).diagram.symbols["H"]
        12
        >>> sum(weight.numel() for weight in open_model("digits").module.parameters())
        19178

    Raises:
        RequestError: if there is no such model, or an option does not apply to its kind.
        ModelFileError: if a file cannot be read.
    """
    if isinstance(what, Model):
        return what
    given = _Given(
        {name: _as_text(value) for name, value in (settings or {}).items()},
        tuple(tuple(shape) for shape in inputs),
        tuple(parameters),
        None if weights is None else Path(weights),
        None if data is None else Path(data),
    )
    if isinstance(what, str):
        return _open_word(what, given)
    if isinstance(what, Path):
        return _open_path(what, given)
    if not (_is_module(what) or _is_drawable(what)):
        raise RequestError(
            f"open_model: wanted a name, a path or a torch.nn.Module, got a {type(what).__name__}."
        )
    return MadeObject(type(what).__name__, lambda: what, *given.of_object)


@dataclass(frozen=True)
class _Given:
    """The options of `open_model`, read."""

    settings: dict[str, str]
    inputs: tuple[Shape, ...]
    parameters: tuple[int, ...]
    weights: Path | None
    data: Path | None

    @property
    def of_object(
        self,
    ) -> tuple[dict[str, str], tuple[Shape, ...], tuple[int, ...], Path | None]:
        return self.settings, self.inputs, self.parameters, self.weights


def _open_word(word: str, given: _Given) -> Model:
    entry = catalogue().get(word)
    if entry is not None:
        return _open_entry(entry, given)
    path = Path(word)
    if not path.exists() and ":" in word:
        return MadeObject(word, lambda: _for_inference(call_factory(word)), *given.of_object)
    if not path.exists() and ("," in word or "->" in word):
        return _open_einsum(word, given)
    if path.exists() or path.suffix or len(path.parts) > 1:
        return _open_path(path, given)
    near = get_close_matches(word, catalogue(), n=3)
    hint = f" Did you mean {', '.join(near)}?" if near else ""
    raise RequestError(
        f"There is no model {word!r}.{hint} `rankscope models` lists the names; an einsum has "
        "commas or an arrow, a factory is package.module:factory, and no file or folder has that "
        "name."
    )


def _open_entry(entry: Entry, given: _Given) -> Model:
    if entry.built_in is None:
        kind = entry.kind if entry.family is None else "family"
        _refuse(entry.name, kind, given.inputs, given.parameters)
        return NamedDiagram(entry.name, entry, given.settings)
    if given.settings or given.parameters:
        raise RequestError(
            f"--set, --size and --parameter do not apply to the built-in network {entry.name!r}."
        )
    return BuiltInNetwork(entry.name, entry.built_in, given.weights, given.data, given.inputs)


def _open_einsum(equation: str, given: _Given) -> Model:
    if given.inputs:
        raise RequestError(f"--input does not apply to the einsum {equation!r}; use --size.")
    sizes = read_sizes(given.settings)

    def make() -> "Drawable":
        from rankscope.diagrams.einsum import from_einsum

        return from_einsum(equation, sizes=sizes, parameters=given.parameters, name=equation)

    return GivenDiagram(equation, make, "einsum")


def _open_path(path: Path, given: _Given) -> Model:
    from rankscope.auditing.sources.documents import read_document

    if (path / "plan.json").is_file():
        document = read_document(path / "plan.json")
        known = document.get("built_in")
        base = None
        if isinstance(known, str) and known in BUILT_IN:
            base = BuiltInNetwork(known, BUILT_IN[known], None, None, given.inputs)
        return CompressedFolder(str(path), path, base)
    if path.suffix == ".json" and not path.name.endswith(".index.json"):
        document = read_document(path)
        if document.get("kind") in ("diagram", "sum", "network") and "model_type" not in document:
            _refuse(str(path), "file", given.inputs, given.parameters)
            return GivenDiagram(str(path), lambda: _saved_diagram(document, given), "diagram")
    return ModelFiles(str(path), path)


def _saved_diagram(document: Mapping[str, Any], given: _Given) -> "Drawable":
    from rankscope.diagrams.network import drawable_with_sizes
    from rankscope.diagrams.serialization import from_dict

    return drawable_with_sizes(from_dict(document), read_sizes(given.settings))


def read_sizes(settings: Mapping[str, str]) -> dict[str, int]:
    """Settings, all of which must be sizes.

    Example:
        >>> read_sizes({"i": "64"})
        {'i': 64}

    Raises:
        RequestError: if one is no integer.
    """
    sizes = {}
    for name, text in settings.items():
        try:
            sizes[name] = int(text)
        except ValueError as error:
            raise RequestError(
                f"The size of {name} must be a positive integer, got {text!r}."
            ) from error
    return sizes


def call_factory(what: str) -> object:
    """Import what stands before the colon and call what stands behind it, without arguments.

    A torch module is returned as it is.

    Raises:
        ImportPathError: if the path leads nowhere, or importing it raises.
        FactoryError: if the factory raises.
    """
    module_name, _, attribute = what.partition(":")
    # Whatever the user's code prints, standard output stays ours.
    with _current_directory_importable(), redirect_stdout(sys.stderr):
        made = _imported(what, module_name)
        for name in attribute.split("."):
            if not hasattr(made, name):
                raise ImportPathError(f"{what}: {module_name} has no attribute {attribute!r}.")
            made = getattr(made, name)
        if not callable(made) or _is_module(made):
            return made
        try:
            return made()
        except Exception as error:
            raise FactoryError(
                f"{what} raised {type(error).__name__} when called without arguments: {error}"
            ) from error


def _imported(what: str, module_name: str) -> object:
    try:
        return import_module(module_name)
    except ModuleNotFoundError as error:
        raise ImportPathError(
            f"{what}: no module named {error.name!r} here or among the installed packages; "
            "write package.module:factory."
        ) from error
    except Exception as error:
        raise ImportPathError(
            f"{what}: importing {module_name!r} raised {type(error).__name__}: {error}"
        ) from error


@contextmanager
def _current_directory_importable() -> Iterator[None]:
    here = str(Path.cwd())
    sys.path.insert(0, here)
    try:
        yield
    finally:
        sys.path.remove(here)


def _read(module: "nn.Module", example: Any, depth: int | None = None) -> "Drawable":
    """A module as a network of diagrams; `example` is tensors or shapes."""
    from rankscope.diagrams.reading import from_module

    parts = example if isinstance(example, tuple) else (example,)
    shapes = [part if isinstance(part, tuple) else tuple(part.shape) for part in parts]
    del depth  # the present reader draws whole networks only
    return from_module(module, *shapes)


def _for_inference(made: object) -> object:
    return made.eval() if _is_module(made) else made


def _is_module(what: object) -> "TypeGuard[nn.Module]":
    # Who has a module has loaded torch; asking sys.modules does not load it for anyone else.
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(what, torch.nn.Module)


def _is_drawable(what: object) -> "TypeGuard[Drawable]":
    from rankscope.diagrams.diagram import Diagram
    from rankscope.diagrams.network import Network, Sum

    return isinstance(what, Diagram | Sum | Network)


def _refuse(name: str, kind: str, inputs: Sequence[Shape], parameters: Sequence[int]) -> None:
    for option, given in (("--input", inputs), ("--parameter", parameters)):
        if given:
            raise RequestError(f"{option} does not apply to the {kind} {name!r}; leave it out.")


def _as_text(value: object) -> str:
    if isinstance(value, tuple | list):
        return ",".join(str(part) for part in value)
    return str(value)
