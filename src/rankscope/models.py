"""MODEL: one word for everything that a command can be given.

`open_model` takes the word (a name of the catalogue, an einsum, a path, `package.module:factory`)
or a module, and gives a `Model`: a frozen value that says its kind and has what that kind has.
Everything it has is made when it is first asked for, so that kinds without torch never load it.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cache, cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

from rankscope.errors import ImportPathError, RequestError, printable
from rankscope.extras import call_factory, is_module
from rankscope.files import is_file, is_folder
from rankscope.networks.catalogue import BUILT_IN, BuiltIn, build, build_trained
from rankscope.rank.networks.catalogue import CATALOGUE as EXACT_NETWORKS
from rankscope.rank.networks.catalogue import read_settings

if TYPE_CHECKING:
    from torch import nn

    from rankscope.auditing.weight_files import OpenedModel
    from rankscope.diagrams.families.settings import Family
    from rankscope.diagrams.network import Drawable
    from rankscope.rank.networks.network import PolynomialNetwork
    from rankscope.tensor_files.sources import TensorSource

Shape = tuple[int, ...]

# What each command works on; one of several is enough.
_NEEDED = {
    "draw": ("diagram",),
    "cost": ("diagram",),
    "cut": ("diagram",),
    "code": ("diagram",),
    "audit": ("weights", "configuration"),
    "compress": ("trained module",),
    "evaluate": ("trained module",),
    "diff": ("weights",),
    "certify": ("trained module",),
    "generalization": ("trained module",),
    "rank": ("exact network", "function"),
    "bounds": ("exact network",),
}


@dataclass(frozen=True)
class Entry:
    """One name of the catalogue: a command takes from it what it needs.

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
        """The kind of model, in words."""
        if self.built_in is not None:
            return "built-in network"
        if self.family is None:
            return "exact network"
        return "family of diagrams with an exact network" if self.is_exact else "family of diagrams"


def catalogue() -> dict[str, Entry]:
    """Every name with its one entry: built-in networks, exact networks, families of diagrams."""
    from rankscope.diagrams.families.catalogue import FAMILIES

    names = dict.fromkeys((*BUILT_IN, *EXACT_NETWORKS, *FAMILIES))
    return {
        name: Entry(name, FAMILIES.get(name), name in EXACT_NETWORKS, BUILT_IN.get(name))
        for name in names
    }


@dataclass(frozen=True, eq=False)
class Model:
    """Something that commands work on: what it is, and what it has.

    Args:
        name: what it was opened from, in words.
        kind: in words, without an article.
        parts: what it has, by name; each is made when it is first asked for.
        start: the module with whatever weights it starts with, if that is another one.
        batch: one batch that the module takes, as tensors or shapes.
        sketch: a picture for sizes that nobody chose, if it is another one than the diagram.
        boxes: the diagram with one box for every module that is nested so deep.
        data_set: that it was made for, by name; None if nobody knows.
        takes_pixels: whether its inputs are entries of the data as they are, not scaled as in
            training.
        folder: as Hugging Face writes it, with the tokenizer; None if there is none.
    """

    name: str
    kind: str
    parts: Mapping[str, Callable[[], Any]]
    start: "Callable[[], nn.Module] | None" = None
    batch: Callable[[], Any] | None = None
    sketch: "Callable[[], Drawable] | None" = None
    boxes: "Callable[[int], Drawable] | None" = None
    data_set: str | None = None
    takes_pixels: bool = True
    folder: Path | None = None

    @property
    def commands(self) -> list[str]:
        """The commands that can use it."""
        return [name for name, parts in _NEEDED.items() if set(parts) & set(self.parts)]

    def require_for(self, command: str) -> None:
        """Refuse a model that a command cannot use, and name the commands that can.

        Raises:
            RequestError: if it has nothing that the command works on.
        """
        if command not in self.commands:
            raise self._lacks(_NEEDED[command], who=command)

    @cached_property
    def diagram(self) -> "Drawable":
        """The model as a tensor diagram, a sum of them, or a network of them."""
        drawable: Drawable = self._part("diagram")
        return drawable

    @property
    def picture(self) -> "Drawable":
        """The diagram; where sizes change its shape and none are given, that of an example."""
        return self.diagram if self.sketch is None else self.sketch()

    def outline(self, depth: int) -> "Drawable":
        """The diagram with one box for every module that is nested `depth` deep."""
        if self.boxes is not None:
            return self.boxes(depth)
        if "diagram" not in self.parts:
            raise self._lacks(("diagram",))
        raise RequestError(
            f"--depth draws the outline of nested modules, but {self.name!r} is "
            f"{_with_article(self.kind)}; leave it out, and give sizes with --set."
        )

    @cached_property
    def network(self) -> "PolynomialNetwork":
        """The network whose rank can be measured exactly."""
        network: PolynomialNetwork = self._part("exact network")
        return network

    @cached_property
    def module(self) -> "nn.Module":
        """The network with its trained weights, in inference mode."""
        module: nn.Module = self._part("trained module")
        return module

    @cached_property
    def untrained(self) -> "nn.Module":
        """The network with whatever weights it starts with: enough for pictures and costs."""
        return self.module if self.start is None else self.start()

    @cached_property
    def example(self) -> Any:
        """One batch that the module takes, as tensors or shapes; None if nobody knows one."""
        return None if self.batch is None else self.batch()

    @property
    def example_tensors(self) -> Any:
        """The example with ones for shapes; one that is alone stands for itself."""
        import torch

        if not isinstance(self.example, tuple):
            return self.example
        parts = [torch.ones(part) if isinstance(part, tuple) else part for part in self.example]
        return parts[0] if len(parts) == 1 else tuple(parts)

    @cached_property
    def function(self) -> Callable[..., Any]:
        """The model as a function, for commands that need only its values."""
        function: Callable[..., Any] = self._part("function")
        return function

    @property
    def configuration(self) -> Mapping[str, object] | None:
        """The document of its `config.json`, or None."""
        return self._opened.config

    @property
    def weights(self) -> "TensorSource | None":
        """Its tensors, read one at a time; None if only the configuration is known."""
        return self._opened.tensors

    @cached_property
    def audited(self) -> object:
        """What an audit opens: a path or a module."""
        return self._part("weights", "configuration")

    @cached_property
    def _opened(self) -> "OpenedModel":
        from rankscope.auditing.weight_files import open_model as open_weights

        return open_weights(self.audited)

    def _part(self, *names: str) -> Any:
        for name in names:
            if name in self.parts:
                return self.parts[name]()
        raise self._lacks(names)

    def _lacks(self, names: Sequence[str], who: str = "open_model") -> RequestError:
        needed = " or ".join(map(_with_article, names))
        has = " and ".join(map(_with_article, self.parts)) or "none of these"
        can = ", ".join(self.commands) or "no command"
        return RequestError(
            f"{who} needs {needed}, but {self.name!r} is {_with_article(self.kind)}, which has "
            f"{has}. It can be given to: {can}."
        )


def _with_article(words: str) -> str:
    if words == "weights":
        return words
    return f"{'an' if words[0] in 'aeiou' else 'a'} {words}"


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
            folder that `compress` wrote), a name of the Hugging Face hub that is in the local
            cache, a module, or a model that is open already. A name comes before a path: write
            `./digits` for a folder of that name.
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
        ImportPathError: if a factory cannot be imported, or makes something else.
        FactoryError: if it raises.
        ModelFileError: if a file cannot be read.
    """
    given = _Given(
        {name: _as_text(value) for name, value in (settings or {}).items()},
        tuple(tuple(shape) for shape in inputs),
        tuple(parameters),
        None if weights is None else Path(weights),
        None if data is None else Path(data),
    )
    if isinstance(what, Model):
        given.refuse("--set", "--input", "--parameter", "--weights", of="model that is open")
        return what
    if isinstance(what, str):
        return _open_word(what, given)
    if isinstance(what, Path):
        return _open_path(what, given)
    return _open_object(type(what).__name__, what, given)


@dataclass(frozen=True)
class _Given:
    """The options of `open_model`, read."""

    settings: dict[str, str]
    inputs: tuple[Shape, ...]
    parameters: tuple[int, ...]
    weights: Path | None
    data: Path | None

    def sizes(self) -> dict[str, int]:
        """The settings, all of which must be sizes."""
        sizes = {}
        for name, text in self.settings.items():
            try:
                sizes[name] = int(text)
            except ValueError as error:
                raise RequestError(
                    f"The size of {name} must be a positive integer, got {text!r}."
                ) from error
        return sizes

    def refuse(self, *options: str, of: str) -> None:
        """Refuse options that do not apply to a kind of model.

        Raises:
            RequestError: if one of them was given.
        """
        values = {
            "--set": self.settings,
            "--input": self.inputs,
            "--parameter": self.parameters,
            "--weights": self.weights,
        }
        for option in options:
            if values[option]:
                raise RequestError(f"{option} does not apply to the {of}; leave it out.")


def _open_word(word: str, given: _Given) -> Model:
    entry = catalogue().get(word)
    if entry is not None:
        opened = _open_diagrams if entry.built_in is None else _open_network
        return opened(entry, given)
    path = Path(word)
    is_there = is_file(path) or is_folder(path)
    if not is_there and ":" in word:
        made = call_factory(word)
        return _open_object(word, made.eval() if is_module(made) else made, given)
    if not is_there and ("," in word or "->" in word):
        return _open_einsum(word, given)
    snapshot = None if is_there else _cached_snapshot(word)
    if snapshot is None and not is_there and re.fullmatch(r"[\w-]+/[\w-]+", word):
        raise RequestError(
            f"There is no file or folder {word!r}, and no model of that name of the Hugging Face "
            f"hub in the local cache; nothing is downloaded here (`hf download {word}` does)."
        )
    if snapshot is not None or is_there or path.suffix or len(path.parts) > 1:
        return _open_path(snapshot or path, given)
    near = get_close_matches(word, catalogue(), n=3)
    hint = f" Did you mean {', '.join(near)}?" if near else ""
    raise RequestError(
        f"There is no model '{printable(word)}'.{hint} `rankscope models` lists the names; an "
        "einsum has commas or an arrow, a factory is package.module:factory, and no file or folder "
        "has that name."
    )


def _open_diagrams(entry: Entry, given: _Given) -> Model:
    """A family of diagrams, an exact network, or both under one name."""
    name, family = entry.name, entry.family
    given.refuse("--input", "--parameter", "--weights", of=f"{entry.kind} {name!r}")

    def network() -> "PolynomialNetwork":
        aliases = {} if family is None else {s.name: s.alias for s in family.settings if s.alias}
        settings = {aliases.get(word, word): value for word, value in given.settings.items()}
        return EXACT_NETWORKS[name].network_class()(**read_settings(name, settings))

    def family_diagram() -> "Drawable":
        from rankscope.diagrams.families.catalogue import build_family

        return build_family(name, given.settings)

    def example_diagram() -> "Drawable":
        exact = EXACT_NETWORKS[name]
        return exact.network_class()(**exact.example).diagram()

    parts: dict[str, Callable[[], Any]] = {"diagram": family_diagram}
    if family is None:
        parts = {"diagram": lambda: network().diagram()}
    if entry.is_exact:
        parts["exact network"] = network
    needs_sizes = family is None and not given.settings
    return Model(name, entry.kind, parts, sketch=example_diagram if needs_sizes else None)


def _open_einsum(equation: str, given: _Given) -> Model:
    given.refuse("--input", "--weights", of=f"einsum {equation!r}")
    sizes = given.sizes()

    def make() -> "Drawable":
        from rankscope.diagrams.einsum import from_einsum

        return from_einsum(equation, sizes=sizes, parameters=given.parameters, name=equation)

    return Model(equation, "einsum", {"diagram": make})


def _open_network(named: Entry, given: _Given) -> Model:
    """A trainable network of the catalogue."""
    name, entry = named.name, BUILT_IN[named.name]
    given.refuse("--set", "--parameter", of=f"built-in network {name!r}")

    @cache
    def trained() -> "nn.Module":
        return build_trained(name, weights=given.weights, data=given.data)

    def untrained() -> "nn.Module":
        return build(name).eval()

    def audited() -> object:
        if name != "transformer" or given.weights is not None:
            return trained()
        from rankscope.auditing.embedded import embedded_model

        return embedded_model(name)  # with its configuration

    return _readable(
        Model(
            name,
            "built-in network",
            {"trained module": trained, "weights": audited},
            start=untrained if given.weights is None else trained,
            batch=lambda: entry.example(given.inputs),
            data_set=entry.data_set,
            takes_pixels=entry.takes_pixels,
        ),
        name=name,
    )


def _open_path(path: Path, given: _Given) -> Model:
    from rankscope.auditing.weight_files import open_model as open_weights
    from rankscope.strict_json import Numbers, read_document

    name = str(path)
    if is_file(path / "plan.json"):
        return _open_compressed(path, read_document(path / "plan.json").get("built_in"), given)
    if path.suffix == ".json" and not path.name.endswith(".index.json"):
        document = read_document(path, numbers=Numbers.ANY)
        if document.get("kind") in ("diagram", "sum", "network") and "model_type" not in document:
            given.refuse("--input", "--parameter", "--weights", of=f"diagram {name!r}")
            return Model(name, "diagram", {"diagram": lambda: _saved_diagram(document, given)})
    given.refuse("--set", "--input", "--parameter", "--weights", of=f"path {name!r}")
    opened = open_weights(path)
    holds = {"configuration": opened.config, "weights": opened.tensors}
    parts = {part: lambda: path for part, value in holds.items() if value is not None}
    if path.is_dir() and len(parts) == 2:
        return _open_folder(path, parts)
    kind = "configuration" if opened.tensors is None else "file of weights"
    return Model(name, "folder of a model" if path.is_dir() else kind, parts)


def _open_folder(folder: Path, parts: "Mapping[str, Callable[[], Any]]") -> Model:
    """A configuration with weights as Hugging Face writes them: transformers makes the module."""

    @cache
    def loaded() -> "nn.Module":
        from rankscope.hf import load_folder

        return load_folder(folder)

    def example() -> Any:
        from rankscope.compression.hugging_face import usual_inputs

        return usual_inputs(loaded())

    made: dict[str, Callable[[], Any]] = {**parts, "trained module": loaded}
    return _readable(Model(str(folder), "folder of a model", made, batch=example, folder=folder))


def _cached_snapshot(name: str) -> Path | None:
    """The folder of a model of the Hugging Face hub, if it was downloaded before."""
    if not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", name) or find_spec("huggingface_hub") is None:
        return None
    from huggingface_hub import try_to_load_from_cache

    try:
        config = try_to_load_from_cache(name, "config.json")
    except ValueError:  # no name that a model of the hub can have
        return None
    return Path(config).parent if isinstance(config, str) else None


def _saved_diagram(document: Mapping[str, Any], given: _Given) -> "Drawable":
    from rankscope.diagrams.network import drawable_with_sizes
    from rankscope.diagrams.serialization import from_dict

    return drawable_with_sizes(from_dict(document), given.sizes())


def _open_compressed(folder: Path, base: object, given: _Given) -> Model:
    """What `compress` wrote; a folder holds no code, so only built-in networks are built again."""
    given.refuse("--set", "--parameter", "--weights", of=f"compressed model {str(folder)!r}")
    if not isinstance(base, str) or base not in BUILT_IN:
        weights = {"weights": lambda: folder}
        return Model(str(folder), "compressed model of a network that is not built in", weights)
    entry = BUILT_IN[base]

    @cache
    def loaded() -> "nn.Module":
        from rankscope.compression.saving import load

        return load(folder)

    return _readable(
        Model(
            str(folder),
            "compressed model",
            {"trained module": loaded, "weights": loaded},
            batch=lambda: entry.example(given.inputs),
            data_set=entry.data_set,
            takes_pixels=entry.takes_pixels,
        )
    )


def _open_object(name: str, made: object, given: _Given) -> Model:
    """Open what a factory makes, or an object that the caller passed."""
    if is_module(made):
        return _open_module(name, made, given)
    if _is_drawable(made):
        from rankscope.diagrams.network import drawable_with_sizes

        drawable = made
        given.refuse("--input", "--parameter", "--weights", of=f"diagram {name!r}")
        sizes = given.sizes()
        return Model(name, "diagram", {"diagram": lambda: drawable_with_sizes(drawable, sizes)})
    if callable(made):
        given.refuse("--set", "--parameter", "--weights", of=f"function {name!r}")
        return Model(name, "function", {"function": lambda: made})
    raise ImportPathError(
        f"{name} gives a {type(made).__name__}, wanted a torch.nn.Module, a diagram or a function."
    )


def _open_module(name: str, module: "nn.Module", given: _Given) -> Model:
    from rankscope.rank.networks.network import PolynomialNetwork

    @cache
    def loaded() -> "nn.Module":
        if given.weights is not None:
            from rankscope.networks.weight_files import load_weights, read_weights

            load_weights(module, read_weights(given.weights), who=str(given.weights))
        return module

    parts = dict.fromkeys(("trained module", "weights", "function"), loaded)
    if isinstance(module, PolynomialNetwork):
        parts["exact network"] = loaded
    model = Model(name, "module", parts, batch=lambda: given.inputs or None)

    def require_readable() -> None:
        given.refuse("--set", "--parameter", of=f"module {name!r}")
        if not given.inputs:
            raise RequestError(
                f"{name} is a module: give the shape of its input, for example --input 1,3,32,32."
            )

    return _readable(model, require=require_readable)


def _readable(
    model: Model, *, name: str | None = None, require: Callable[[], None] = lambda: None
) -> Model:
    """The same with a diagram that is read from its module, whole or in outline."""

    def read(depth: int | None = None) -> "Drawable":
        require()
        return _read(model.untrained, model.example, depth, name)

    return replace(model, parts={"diagram": read, **model.parts}, boxes=read)


def _read(module: "nn.Module", example: Any, depth: int | None, name: str | None) -> "Drawable":
    """A module as a network of diagrams; `example` is tensors or shapes."""
    from rankscope.reading.network import from_module

    parts = example[0] if isinstance(example, tuple) and len(example) == 1 else example
    return from_module(module, parts, depth=depth, name=name)


def _is_drawable(what: object) -> "TypeGuard[Drawable]":
    from rankscope.diagrams.diagram import Diagram
    from rankscope.diagrams.network import Network, Sum

    return isinstance(what, Diagram | Sum | Network)


def _as_text(value: object) -> str:
    if not isinstance(value, tuple | list):
        return str(value)
    mark = ";" if value and isinstance(value[0], tuple | list) else ","
    return mark.join(_as_text(part) for part in value)
