from rankscope.drawing import DARK, LIGHT, contrast
from rankscope.page.words import diagram_colors, page_colors


def test_every_style_of_a_diagram_is_repainted() -> None:
    rules = diagram_colors()
    for style in (*LIGHT.shapes, *LIGHT.wires, *LIGHT.labels):
        assert f".{style} {{" in rules


def test_open_shapes_stay_open() -> None:
    assert LIGHT.shape("plate").fill is None
    plate = next(rule for rule in diagram_colors().splitlines() if ".plate {" in rule)
    assert "fill" not in plate


def test_colours_of_text_can_be_read_in_both_schemes() -> None:
    colors = {
        line.split(":")[0].strip(): line.split("light-dark(")[1].rstrip(");").split(", ")
        for line in page_colors().splitlines()
    }
    for name in ("--ink", "--muted", "--accent", "--blue"):
        for ground in ("--background", "--panel"):
            for text, behind in zip(colors[name], colors[ground], strict=True):
                assert contrast(text, behind) >= 4.5, (name, ground)
    assert colors["--background"] == [LIGHT.background, DARK.background]
