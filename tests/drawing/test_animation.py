import sys
from io import BytesIO

import pytest
from PIL import Image

from rankscope.diagrams import (
    Diagram,
    Function,
    Index,
    Node,
    Region,
    Role,
    Sum,
    Term,
    plan_contraction,
)
from rankscope.drawing import DARK, LIGHT, channels, draw_sequence, frame_sequences, to_gif
from rankscope.drawing.animation import HOLD, LAST_HOLD, MOVE_STEP, MOVE_STEPS, shots
from rankscope.errors import MissingExtraError


def layer(*, name: str = "layer") -> Diagram:
    return Diagram(
        name,
        (Index("b", 2), Index("f", 3), Index("h", 4), Index("o", 5)),
        (
            Node("X", ("b", "f"), Role.DATA),
            Node("V", ("f", "h")),
            Node("W", ("h", "o")),
        ),
        output=("b", "o"),
        regions=(Region("R", ("X", "V"), Function("relu")),),
    )


def durations(data: bytes) -> list[int]:
    picture = Image.open(BytesIO(data))
    found = []
    for number in range(getattr(picture, "n_frames", 1)):
        picture.seek(number)
        found.append(picture.info["duration"])
    return found


def test_frames_are_held_and_moves_take_four_tenths_of_a_second() -> None:
    times = durations(to_gif(layer()))
    move = [MOVE_STEP] * MOVE_STEPS
    # Start, X V, the barrier (which moves nothing), and the product.
    assert times == [HOLD, *move, HOLD, HOLD, *move, LAST_HOLD]
    assert MOVE_STEP * MOVE_STEPS == 400


@pytest.mark.slow
def test_it_repeats_for_ever_and_has_the_colours_of_the_theme() -> None:
    for theme in (LIGHT, DARK):
        picture = Image.open(BytesIO(to_gif(layer(), theme=theme)))
        assert picture.info["loop"] == 0
        pixel = picture.convert("RGB").getpixel((0, 0))
        assert pixel == tuple(round(255 * value) for value in channels(theme.background))


@pytest.mark.slow
def test_the_same_diagram_gives_the_same_bytes() -> None:
    assert to_gif(layer()) == to_gif(layer())


def test_all_pictures_of_all_chapters_are_of_one_size() -> None:
    wide = Diagram("wide", (Index("b", 2), Index("o", 5)), (Node("E", ("b", "o")),), ("b", "o"))
    total = Sum("sum", (Term(layer()), Term(layer(name="again")), Term(wide)))
    found = shots(
        [draw_sequence(sequence) for sequence in frame_sequences(total, plan_contraction)]
    )
    sizes = {
        (round(right - left, 6), round(bottom - top, 6))
        for left, top, right, bottom in (scene.box for scene, _ in found)
    }
    assert len(sizes) == 1


@pytest.mark.slow
def test_scale_makes_it_larger() -> None:
    small, large = (Image.open(BytesIO(to_gif(layer(), scale=scale))) for scale in (0.5, 1.0))
    assert large.width == pytest.approx(2 * small.width, abs=2)


def test_without_pillow_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(MissingExtraError, match=r"pillow, .* 'rankscope\[draw\]'"):
        to_gif(layer())
