import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from rankscope.drawing import (
    DARK,
    LIGHT,
    THEMES,
    Scene,
    Shape,
    ShapeKind,
    Theme,
    Wire,
    place_label,
    to_tikz,
)

LABELS = (
    "$R_{17}$",
    r"$\mathcal{W}^{\,Q}$",
    r"$\mathbf{layers.0.weight}$",
    r"$\mathrm{softmax}_M(\,\cdot\,/\sqrt{D}\,)$",
    r"$\mathcal{w}\mathbb{1}\mathscr{L}$",
    r"$\bigstar$",
    r"$\mathdefault{x}$",
    r"$\mathbf{\alpha}$",
    "$α$ naïve",
    r"100% {of} a_b & #1 ~ ^ \$5 <x> | -- \x",
    r"$\frac{a}{b}\leq\hat{x}\tanh\mathfrak{g}$",
    r"$\operatorname{rank}$",
)


def labelled(*texts: str) -> Scene:
    labels = [
        place_label(text, (0.0, 40.0 * place), size=20.0, style="caption")
        for place, text in enumerate(texts)
    ]
    return Scene("labels", labels=tuple(labels))


def compile_to_pdf(document: str, folder: Path) -> bytes:
    (folder / "picture.tex").write_text(document, encoding="utf-8")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "picture.tex"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:]
    return (folder / "picture.pdf").read_bytes()


def test_every_part_is_drawn_once(gallery: Scene) -> None:
    text = to_tikz(gallery)
    assert text.count(r"\filldraw[") == len((*gallery.frames, *gallery.shapes, *gallery.marks))
    assert text.count(r"\draw[") == len(gallery.wires)
    assert text.count(r"\node[") + text.count(r"\fill[") == len(gallery.labels)


@pytest.mark.parametrize("theme", THEMES.values(), ids=list(THEMES))
def test_every_colour_is_defined_and_used(gallery: Scene, theme: Theme) -> None:
    colors, picture = to_tikz(gallery, theme).split(r"\begin{tikzpicture}")
    defined = re.findall(r"\\definecolor\{(\w+)\}\{HTML\}\{(\w{6})\}", colors)
    used = re.findall(r"rankscope\w{6}", picture)
    assert [name for name, _ in defined] == list(dict.fromkeys(used))
    assert all(name == f"rankscope{code}" for name, code in defined)


def test_lines_are_as_wide_and_as_dashed_as_in_svg(gallery: Scene) -> None:
    lines = to_tikz(gallery).splitlines()
    barrier = next(line for line in lines if line.startswith(r"\filldraw"))
    assert "line width=1.35bp" in barrier
    assert "dash pattern=on 5.25bp off 3.75bp" in barrier
    assert "rounded corners=10.5bp" in barrier
    batch = LIGHT.wire("wire-batch").color.removeprefix("#")
    dotted = [line for line in lines if rf"\draw[draw=rankscope{batch}" in line and "dash" in line]
    assert len(dotted) == 1
    assert "line cap=round" in dotted[0]


def test_dots_are_as_far_apart_as_their_wire_is_wide() -> None:
    wire = Wire("b", ((0.0, 0.0), (99.0, 0.0)), "wire-batch", width=4.0)
    on, off = (4.0 * 0.75 * length for length in LIGHT.wire("wire-batch").dash)
    assert f"dash pattern=on {on:g}bp off {off:g}bp" in to_tikz(Scene("s", wires=(wire,)))


def test_curves_are_the_same_as_in_svg() -> None:
    wire = Wire("i", ((0.0, 0.0), (60.0, 0.0), (60.0, 60.0)), "wire-rank", corner_radius=30.0)
    text = to_tikz(Scene("s", wires=(wire,), margin=0.0))
    # A quadratic curve from (30, 0) by (60, 0) to (60, 30), its controls two thirds of the way.
    assert "(0,0) -- (30,0) .. controls (50,0) and (60,10) .. (60,30) -- (60,60);" in text


def test_the_picture_is_as_large_as_the_view_box() -> None:
    shape = Shape("A", ShapeKind.CIRCLE, 500.0, 500.0, 60.0, 60.0, "data")
    text = to_tikz(Scene("s", shapes=(shape,), margin=10.0))
    assert r"\path[use as bounding box,fill=rankscopeFFFFFF] (0,0) rectangle (80,80);" in text
    assert "(40,40) circle[radius=30];" in text
    assert "[x=0.75bp,y=-0.75bp," in text


def test_a_picture_beyond_the_numbers_of_tex_is_drawn_smaller() -> None:
    wire = Wire("i", ((0.0, 0.0), (32000.0, 0.0)), "wire-rank", width=4.0)
    text = to_tikz(Scene("s", wires=(wire,), margin=0.0))
    assert "(0,0) -- (16000,0);" in text
    assert "line width=1.5bp" in text


def test_labels_that_latex_cannot_set_are_outlines() -> None:
    text = to_tikz(labelled("$X$", r"$\mathscr{L}$"))
    assert text.count(r"\node[") == 1
    assert text.count(r"\fill[") == 1
    assert "{$X$};" in text
    assert "mathscr" not in text


def test_a_title_with_a_line_break_stays_in_its_comment(gallery: Scene) -> None:
    text = to_tikz(replace(gallery, title="first\n\\second \ud800"))
    assert text.startswith("% first /second ?\n\\definecolor")
    assert text.encode("utf-8")


def test_no_command_of_tex_comes_through_from_a_title(gallery: Scene) -> None:
    title = r"\input{/etc/passwd} \immediate\write18{id} ^^5cinput" + "\x1b[2J\u2028\\def"
    first = to_tikz(replace(gallery, title=title)).splitlines()[0]
    assert first.startswith("% /input{/etc/passwd} /immediate/write18{id}")
    assert "\\" not in first
    assert first.isprintable()


def document(picture: str) -> str:
    """A page of the picture's size, of stock packages only."""
    head = r"\documentclass[tikz,border=0pt]{standalone}\usepackage{amsmath,amssymb}"
    return f"{head}\n\\begin{{document}}\n{picture}\\end{{document}}\n"


# The checks above do not need LaTeX; this one proves them where it is installed.
@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed")
def test_pdflatex_compiles_every_style_and_every_label(gallery: Scene, tmp_path: Path) -> None:
    extra = labelled(*LABELS).shifted(0.0, 600.0)
    pdf = compile_to_pdf(document(to_tikz(gallery.joined([extra]), DARK)), tmp_path)
    assert pdf.startswith(b"%PDF")
