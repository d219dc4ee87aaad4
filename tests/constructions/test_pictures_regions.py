import re
from pathlib import Path

from rankscope.constructions.dense import Box
from rankscope.constructions.obstructions import find_obstruction, maximum_of_three
from rankscope.constructions.pictures_functions import draw_regions
from rankscope.constructions.regions import regions_in_plane

SQUARE = Box.of([-1.0, -1.0], [1.0, 1.0])


def test_there_is_a_polygon_for_each_pattern_and_a_colour_for_each_piece(tmp_path: Path) -> None:
    found = regions_in_plane(maximum_of_three(), SQUARE)
    text = draw_regions(found, tmp_path / "regions.svg").read_text(encoding="utf-8")
    group = text[text.index('id="PolyCollection_1"') :]
    paths = re.findall(r'<path d="[^"]*" clip-path[^>]*fill: (#\w+)', group)
    assert len(paths) == found.num_patterns
    assert len(set(paths)) == found.num_affine_pieces


def test_an_obstruction_adds_two_marks(tmp_path: Path) -> None:
    found = regions_in_plane(maximum_of_three(), SQUARE)
    marked = find_obstruction(maximum_of_three(), SQUARE)
    plain = draw_regions(found, tmp_path / "plain.svg", title="the same").read_text("utf-8")
    path = draw_regions(found, tmp_path / "marked.svg", title="the same", obstruction=marked)
    thick = "stroke-width: 3.5"
    assert plain.count(thick) == 0
    assert path.read_text("utf-8").count(thick) == 2
