"""Acceptance 16 and 17: one scene, four formats, the same picture and the same bytes."""

import hashlib
import os
import pickle
import shutil
import subprocess
import sys
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from rankscope.drawing import THEMES, Scene, to_pdf, to_png, to_svg, to_tikz

CHILD = """
import hashlib, pickle, sys
from pathlib import Path
from rankscope.drawing.raster import to_pdf, to_png
from rankscope.drawing.svg import to_svg
from rankscope.drawing.tikz import to_tikz
scene = pickle.loads(Path(sys.argv[1]).read_bytes())
for data in (to_svg(scene).encode(), to_tikz(scene).encode(), to_png(scene), to_pdf(scene)):
    print(hashlib.sha256(data).hexdigest())
print("torch" in sys.modules, "matplotlib.pyplot" in sys.modules)
"""


def greys(picture: bytes) -> np.ndarray:
    with Image.open(BytesIO(picture)) as opened:
        return np.asarray(opened.convert("L"), dtype=float)


def rasterized(pdf: Path) -> np.ndarray:
    """A PDF at two dots for every pixel of the scene."""
    command = ["pdftoppm", "-r", "192", "-png", "-singlefile", str(pdf), str(pdf.with_suffix(""))]
    subprocess.run(command, check=True)
    return greys(pdf.with_suffix(".png").read_bytes())


def share_that_differs(first: np.ndarray, second: np.ndarray) -> float:
    """Share of dots that differ by more than a quarter of the way from black to white."""
    height, width = np.minimum(first.shape, second.shape)
    return float((abs(first[:height, :width] - second[:height, :width]) > 64).mean())


@pytest.mark.slow
def test_all_formats_have_the_same_bytes_for_any_hash_seed(gallery: Scene, tmp_path: Path) -> None:
    stored = tmp_path / "scene.pickle"
    stored.write_bytes(pickle.dumps(gallery))
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(stored)],
        env={**os.environ, "PYTHONHASHSEED": "4242"},
        capture_output=True,
        text=True,
        check=True,
    )
    printed = done.stdout.splitlines()
    assert len(set(printed)) == 5
    # Writers need neither torch nor pyplot, which would change global state.
    assert printed[-1] == "False False"
    here = (to_svg(gallery).encode(), to_tikz(gallery).encode(), to_png(gallery), to_pdf(gallery))
    assert [hashlib.sha256(data).hexdigest() for data in here] == printed[:-1]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("pdftoppm") is None, reason="pdftoppm is not installed")
def test_pdf_and_png_show_the_same_picture(gallery: Scene, tmp_path: Path) -> None:
    for theme in THEMES.values():
        path = tmp_path / f"{theme.name}.pdf"
        path.write_bytes(to_pdf(gallery, theme))
        drawn, printed = greys(to_png(gallery, theme)), rasterized(path)
        assert drawn.shape == printed.shape
        # Two engines smooth edges differently; nothing else may differ.
        assert share_that_differs(drawn, printed) < 0.005
        assert share_that_differs(drawn, np.roll(printed, 20, axis=1)) > 0.01


@pytest.mark.slow
@pytest.mark.skipif(
    shutil.which("pdflatex") is None or shutil.which("pdftoppm") is None,
    reason="pdflatex or pdftoppm is not installed",
)
def test_tikz_shows_the_same_picture_in_the_fonts_of_latex(gallery: Scene, tmp_path: Path) -> None:
    head = r"\documentclass[tikz,border=0pt]{standalone}\usepackage{amsmath,amssymb}"
    text = f"{head}\n\\begin{{document}}\n{to_tikz(gallery)}\\end{{document}}\n"
    (tmp_path / "picture.tex").write_text(text, encoding="utf-8")
    command = ["pdflatex", "-interaction=batchmode", "-halt-on-error", "picture.tex"]
    subprocess.run(command, cwd=tmp_path, capture_output=True, check=True)
    drawn, printed = greys(to_png(gallery)), rasterized(tmp_path / "picture.pdf")
    assert abs(np.subtract(drawn.shape, printed.shape)).max() <= 2
    # Letters are of another font, and they are less than one dot in thirty.
    assert share_that_differs(drawn, printed) < 0.03
