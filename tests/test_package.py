"""Rules about the package as a whole."""

import ast
import importlib
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import rankscope
from rankscope import diagrams

ROOT = Path(rankscope.__file__).parent
# A package may import from the rows above its own, and in its own row from those before it.
ROWS = [
    (
        "errors",
        "budget",
        "display",
        "theorem",
        "files",
        "strict_json",
        "resumable",
        "tensor_files",
        "modes",
        "progress",
        "seeds",
        "workers",
        "extras",
    ),
    ("diagrams",),
    ("drawing", "reading", "rank", "factorize"),
    ("robust", "networks"),
    ("auditing", "compression", "generalize"),
    ("hf", "models", "verbs"),
    ("lab",),
    ("page",),
    ("cli",),
]
# Of the names that tests import, the largest share that no façade exports.
MOST_PRIVATE = 0.25
PLACE_OF = {name: place for place, name in enumerate(name for row in ROWS for name in row)}
MODULES = sorted(ROOT.rglob("*.py"))


@cache
def imports(path: Path) -> tuple[tuple[ast.Import | ast.ImportFrom, bool], ...]:
    """Every import of a file, inside of functions too, and whether it runs when the file is loaded.

    Only statements are visited: expressions hold no import.
    """
    pending: list[tuple[ast.AST, bool]] = [(ast.parse(path.read_text(encoding="utf-8")), True)]
    lines = []
    while pending:
        part, is_loaded = pending.pop()
        if isinstance(part, (ast.Import, ast.ImportFrom)):
            lines.append((part, is_loaded))
        is_for_types = isinstance(part, ast.If) and "TYPE_CHECKING" in ast.unparse(part.test)
        is_later = isinstance(part, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
        for block in ("body", "orelse", "handlers", "finalbody", "cases"):
            inner = getattr(part, block, ())
            if isinstance(inner, list):
                runs = is_loaded and not is_later and not (is_for_types and block == "body")
                pending += [(each, runs) for each in inner]
    return tuple(lines)


def import_lines(path: Path) -> list[ast.Import | ast.ImportFrom]:
    return [line for line, _ in imports(path)]


def imported_modules(path: Path) -> list[str]:
    found = []
    for part in import_lines(path):
        if isinstance(part, ast.ImportFrom):
            found.append(part.module or "")
        else:
            found.extend(alias.name for alias in part.names)
    return found


def imported_rooms(path: Path) -> set[str]:
    names = [name for name in imported_modules(path) if name.startswith("rankscope.")]
    return {name.split(".")[1] for name in names}


def module_name(path: Path) -> str:
    parts = ("rankscope", *path.relative_to(ROOT).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def loaded_modules(path: Path) -> list[str]:
    """Modules of the package that are loaded with this one: not those under TYPE_CHECKING."""
    found = []
    for part, is_loaded in imports(path):
        if is_loaded and isinstance(part, ast.ImportFrom) and part.module is not None:
            submodules = [f"{part.module}.{alias.name}" for alias in part.names]
            known = [name for name in submodules if name in NAMES]
            found += known or [part.module] * (part.module in NAMES)
    return found


NAMES = {module_name(path) for path in MODULES}


def imported_names(path: Path, package: str) -> dict[str, tuple[str, str]]:
    """Names that a file imports from the package: local name -> module, name there."""
    names: dict[str, tuple[str, str]] = {}
    for part in import_lines(path):
        if not isinstance(part, ast.ImportFrom):
            continue
        module = f"{package}.{part.module or ''}".rstrip(".") if part.level else part.module or ""
        if module.split(".")[0] == "rankscope":
            names |= {alias.asname or alias.name: (module, alias.name) for alias in part.names}
    return names


def exported_names() -> set[tuple[str, str]]:
    """Where the names that façades list are defined."""
    exported: set[tuple[str, str]] = set()
    for facade in (*ROOT.rglob("__init__.pyi"), *ROOT.rglob("__init__.py")):
        package = ".".join(("rankscope", *facade.relative_to(ROOT).parent.parts))
        exported |= set(imported_names(facade, package).values())
    return exported


def run_python(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    return done.stdout.strip()


def test_imports_point_in_one_direction_only() -> None:
    for path in MODULES:
        own = path.relative_to(ROOT).parts[0].removesuffix(".py")
        if own == "__init__":
            continue
        for other in imported_rooms(path):
            assert PLACE_OF[other] <= PLACE_OF[own], f"{path.relative_to(ROOT)} imports {other}"


def test_all_is_sorted_and_real() -> None:
    assert rankscope.__all__ == sorted(rankscope.__all__)
    assert len(rankscope.__all__) <= 27
    for name in rankscope.__all__:
        assert getattr(rankscope, name).__doc__, name


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="rankscope attribute nonsense"):
        _ = rankscope.nonsense  # type: ignore[attr-defined]


def test_a_name_of_an_earlier_version_says_where_it_is_now() -> None:
    moved: dict[str, str] = vars(rankscope)["_MOVED"]
    assert {"certify", "family", "Plan", "cp_rank"} <= moved.keys()
    for name, place in moved.items():
        with pytest.raises(AttributeError, match=re.escape(f"rankscope.{name} is now {place}.")):
            getattr(rankscope, name)
        module, _, attribute = place.split(" ")[0].rpartition(".")
        assert hasattr(importlib.import_module(module), attribute), place


def test_the_names_of_diagrams_are_real_whatever_was_imported_before() -> None:
    for name in diagrams.__all__:
        assert getattr(diagrams, name).__doc__, name
    for name in ("describe", "minimal_cut", "from_einsum"):
        assert callable(getattr(diagrams, name)), name


def test_every_file_is_small_enough_to_read_in_one_sitting() -> None:
    for path in MODULES:
        length = len(path.read_text(encoding="utf-8").splitlines())
        assert length <= 620, f"{path.relative_to(ROOT)} has {length} lines"


def test_importing_the_package_loads_neither_torch_nor_matplotlib() -> None:
    code = (
        "import sys, rankscope, rankscope.diagrams, rankscope.models, rankscope.cli.main;"
        "print('torch' in sys.modules, 'matplotlib' in sys.modules)"
    )
    assert run_python(code) == "False False"


def test_models_are_read_and_planned_without_matplotlib() -> None:
    code = (
        "import sys, rankscope.reading, rankscope.compression.planning, rankscope.drawing.svg;"
        "print('matplotlib' in sys.modules)"
    )
    assert run_python(code) == "False"


def test_drawing_a_family_never_loads_torch() -> None:
    code = (
        "import sys; from rankscope.drawing.page import compose;"
        "from rankscope.diagrams.families import build_family;"
        "from rankscope.drawing.svg import to_svg;"
        "to_svg(compose(build_family('multi-head', {}))); print('torch' in sys.modules)"
    )
    assert run_python(code) == "False"


# PyTorch's own notes on extending it import modes from there; they have no public name.
DOCUMENTED = ("torch.utils._python_dispatch",)


def test_no_private_torch_name_is_used() -> None:
    for path in MODULES:
        for name in imported_modules(path):
            private = [part for part in name.split(".")[1:] if part.startswith("_")]
            is_private = name.startswith("torch") and private and name not in DOCUMENTED
            assert not is_private, f"{path} imports {name}"


def test_no_file_names_are_dumping_grounds() -> None:
    for path in MODULES:
        assert path.stem not in {"utils", "common", "helpers", "misc"}, path


def test_no_two_modules_import_each_other() -> None:
    """Imports that run when a module is loaded make no circle, however long."""
    graph = {module_name(path): loaded_modules(path) for path in MODULES}
    finished: set[str] = set()

    def visit(name: str, path: tuple[str, ...]) -> None:
        assert name not in path, " imports ".join((*path[path.index(name) :], name))
        if name in finished:
            return
        for other in graph[name]:
            visit(other, (*path, name))
        finished.add(name)

    for name in graph:
        visit(name, ())


class Definitions:
    """Where a name that some file imports is defined, through façades and other files."""

    def __init__(self) -> None:
        self.imports = {module_name(path): imported_names(path, "") for path in MODULES}
        for stub in ROOT.rglob("__init__.pyi"):
            package = module_name(stub.with_suffix(".py"))
            self.imports[package] = imported_names(stub, package)

    def of(self, place: tuple[str, str]) -> tuple[str, str]:
        module, name = place
        origin = self.imports.get(module, {}).get(name, place)
        return place if origin == place else self.of(origin)


@cache
def definitions() -> Definitions:
    return Definitions()


PACKAGES = {module_name(path) for path in ROOT.rglob("__init__.py")}
TESTS = sorted(Path(__file__).parent.rglob("*.py"))


def test_most_names_that_tests_import_are_exported() -> None:
    """Tests that know only public names outlive a change of files."""

    def is_public(place: tuple[str, str]) -> bool:
        module, name = place
        is_of_the_top = module.count(".") < 2 and module not in PACKAGES
        is_of_a_facade = module in PACKAGES and f"{module}.{name}" not in NAMES - PACKAGES
        return place in exported or is_of_the_top or is_of_a_facade

    definitions = Definitions()
    exported = {definitions.of(place) for place in exported_names()}
    used = {definitions.of(place) for path in TESTS for place in imported_names(path, "").values()}
    private = sorted(place for place in used if not is_public(place))
    assert len(private) <= MOST_PRIVATE * len(used), f"{len(private)} of {len(used)}: {private}"


def test_tests_import_from_a_facade_what_it_exports() -> None:
    origin = definitions().of
    facades = {package: definitions().imports[package] for package in PACKAGES - {"rankscope"}}
    for path in TESTS:
        for module, name in imported_names(path, "").values():
            for package, names in facades.items():
                is_inside = module not in facades and module.startswith(f"{package}.")
                if is_inside and name in names:
                    same = origin((package, name)) == origin((module, name))
                    assert not same, f"{path.name}: {name} is in {package}, not only in {module}"


def test_pages_name_tests_that_exist() -> None:
    for page in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]:
        for name in re.findall(r"\btests/[\w/]+\.py", page.read_text(encoding="utf-8")):
            assert (ROOT / name).is_file(), f"{page.relative_to(ROOT)} names {name}"
