"""The documentation site: docs/ with the API reference, by Zensical, without the network.

Usage: python docs/make_site.py [FOLDER]   (by default `site`)

The pages of docs/ are copied, the reference is written beside them from docstrings, and links to
files outside docs/ are followed by copies of these files. Zensical then writes the site.
"""

import ast
import importlib
import inspect
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PACKAGES = (
    "rankscope",
    "rankscope.rank",
    "rankscope.diagrams",
    "rankscope.diagrams.editing",
    "rankscope.diagrams.running",
    "rankscope.drawing",
    "rankscope.drawing.layout",
    "rankscope.auditing",
    "rankscope.compression",
    "rankscope.factorize",
    "rankscope.robust",
    "rankscope.generalize",
    "rankscope.networks",
    "rankscope.lab",
    "rankscope.lab.constructions",
    "rankscope.lab.data",
    "rankscope.lab.experiments",
    "rankscope.page",
    "rankscope.tensor_files",
)
# Files at the top that pages speak of.
BESIDE = ("ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "README.md")
LINK = re.compile(r"(?<=\]\()(\.\./)+(?P<path>[^)#\s]+)")
HEADING = re.compile(r"(Args|Returns|Raises|Example|Reference|Attributes):\s*$")
ITEM = re.compile(r" {4}([\w.*]+): (.*)")


def main(target: Path) -> None:
    """Write the site into a folder."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder)
        (source / "zensical.toml").write_text(configuration(), encoding="utf-8")
        pages = source / "docs"
        shutil.copytree(DOCS, pages, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
        for name in BESIDE:
            text = (ROOT / name).read_text(encoding="utf-8")
            (pages / name.lower().replace("readme", "readme-of-the-repository")).write_text(
                text.replace("](docs/", "](")
                .replace("](ARCHITECTURE.md", "](architecture.md")
                .replace("](CONTRIBUTING.md", "](contributing.md")
                .replace("](SECURITY.md", "](security.md"),
                encoding="utf-8",
            )
        for path in sorted((pages / "notebooks").glob("*.ipynb")):
            path.with_suffix(".md").write_text(notebook_page(path), encoding="utf-8")
        for page in pages.rglob("*.md"):
            _bring_along(page, pages)
        write_reference(pages / "reference")
        command = [sys.executable, "-m", "zensical", "build", "--clean"]
        subprocess.run(command, cwd=source, check=True, stdout=subprocess.DEVNULL)
        if target.exists():
            shutil.rmtree(target)
        shutil.copytree(source / "site", target)
    print(target / "index.html")


def configuration() -> str:
    """The configuration, with the pages that it does not name by their titles."""
    text = (ROOT / "zensical.toml").read_text(encoding="utf-8")
    for place, pages in (
        ("    # other pages of docs/, by their titles", DOCS.glob("*.md")),
        ("    # pages of docs/experiments/, by their titles", DOCS.glob("experiments/*.md")),
    ):
        entries = []
        for page in sorted(pages):
            path = page.relative_to(DOCS).as_posix()
            if f'"{path}"' not in text:
                title = page.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")
                entries.append(f"    {{ {json.dumps(title)} = {json.dumps(path)} }},")
        text = text.replace(place, "\n".join(entries))
    return text


def _bring_along(page: Path, pages: Path) -> None:
    """Copy files that a page links to outside docs/, and let it link to the copies."""
    text = page.read_text(encoding="utf-8")
    depth = len(page.relative_to(pages).parts) - 1

    def local(match: re.Match[str]) -> str:
        steps = match[0].count("../")
        if steps <= depth:
            return match[0]
        path = match["path"]
        copied = pages / "files" / path
        copied.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / path, copied)
        return "../" * depth + f"files/{path}"

    # The site shows a notebook as a page; where it is code, the notebook itself is the thing.
    changed = LINK.sub(local, text)
    if page.parent.name != "notebooks":
        changed = changed.replace(".ipynb)", ".md)")
    if changed != text:
        page.write_text(changed, encoding="utf-8")


# --- Notebooks as pages: text, code, and what the code gave ---------------------------------------


def notebook_page(path: Path) -> str:
    """A notebook as Markdown, with its outputs."""
    document = json.loads(path.read_text(encoding="utf-8"))
    parts: list[str] = []
    for cell in document["cells"]:
        text = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(text)
            continue
        parts.append(f"```python\n{text}\n```")
        parts += [_output(output) for output in cell["outputs"]]
    name = path.name
    return "\n\n".join((*parts, f"[The notebook itself]({name})", ""))


def _output(output: dict[str, Any]) -> str:
    if output["output_type"] == "stream":
        return f"```text\n{''.join(output['text']).rstrip()}\n```"
    data = output["data"]
    for kind in ("text/html", "image/svg+xml"):
        if kind in data:
            # Without empty lines, which would end a block of HTML.
            lines = "".join(data[kind]).splitlines()
            return f"<div>{''.join(line for line in lines if line.strip())}</div>"
    return f"```text\n{''.join(data['text/plain'])}\n```"


# --- The reference: one page for each façade, from the docstrings ---------------------------------


def write_reference(folder: Path) -> None:
    """Write one page for each package, and a list of them."""
    folder.mkdir()
    lines = ["# Reference", "", "From the docstrings; every example is run by the tests.", ""]
    for package in PACKAGES:
        module = importlib.import_module(package)
        names = public_names(package)
        text = "\n".join(_page(package, names))
        (folder / f"{package}.md").write_text(text, encoding="utf-8")
        summary = (inspect.getdoc(module) or "").partition("\n")[0]
        lines.append(f"- [`{package}`]({package}.md): {summary}")
    (folder / "index.md").write_text("\n".join((*lines, "")), encoding="utf-8")


def public_names(package: str) -> list[str]:
    """The names of a façade, in the order of its list."""
    module = importlib.import_module(package)
    stub = Path(str(module.__file__)).with_suffix(".pyi")
    if not stub.exists():
        return list(module.__all__)
    tree = ast.parse(stub.read_text(encoding="utf-8"))
    return [
        alias.asname or alias.name
        for part in tree.body
        if isinstance(part, ast.ImportFrom)
        for alias in part.names
    ]


def _page(package: str, names: list[str]) -> Iterator[str]:
    module = importlib.import_module(package)
    yield f"# {package}"
    yield ""
    yield _prose(inspect.getdoc(module) or "")
    for name in sorted(names, key=str.lower):
        value = getattr(module, name)
        yield ""
        yield f"## {name}"
        yield ""
        if inspect.ismodule(value):
            yield (
                f"The package [`{value.__name__}`]({value.__name__}.md)."
                if (value.__name__ in PACKAGES)
                else f"The package `{value.__name__}`."
            )
            continue
        yield "```python"
        yield _signature(name, value)
        yield "```"
        yield ""
        if inspect.isclass(value) or inspect.isroutine(value):
            yield _prose(inspect.getdoc(value) or "")
        if inspect.isclass(value):
            yield from _members(value)


def _signature(name: str, value: object) -> str:
    if not callable(value):
        return f"{name}: {type(value).__name__}"
    word = "class" if inspect.isclass(value) else "def"
    try:
        return f"{word} {name}{inspect.signature(value)}"
    except (TypeError, ValueError):
        return f"{word} {name}"


def _members(kind: type) -> Iterator[str]:
    for name, member in vars(kind).items():
        text = inspect.getdoc(member) if not name.startswith("_") else None
        is_shown = inspect.isfunction(member) or isinstance(
            member, property | classmethod | staticmethod
        )
        if text and is_shown:
            yield ""
            yield f"- `{name}`: {text.partition(chr(10))[0]}"


def _prose(text: str) -> str:
    """A docstring of Google's form as Markdown: arguments and errors as lists, examples as code."""
    lines: list[str] = []
    heading = ""
    for line in [*text.splitlines(), ""]:
        found = HEADING.match(line)
        if found or (heading and line and not line.startswith(" ")):
            lines += ["```", ""] if heading == "Example" else [""]
            heading = ""
        if found:
            heading = found[1]
            lines += ["", f"**{heading}**", "", *(["```pycon"] if heading == "Example" else [])]
        elif heading in ("", "Reference"):
            math = line.strip().startswith(".. math::")
            lines.append(f"`{line.replace('.. math::', '').strip()}`" if math else line.strip())
        elif heading == "Example":
            lines.append(line.removeprefix("    "))
        else:
            lines.append(_item(line))
    return "\n".join([*lines, *(["```"] if heading == "Example" else [])])


def _item(line: str) -> str:
    """A line below Args, Raises and the like: a name begins an item, what is deeper goes on."""
    name = ITEM.match(line)
    return f"- `{name[1]}`: {name[2]}" if name else f"  {line.strip()}" if line.strip() else ""


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "site"))
