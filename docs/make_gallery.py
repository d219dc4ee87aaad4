"""Make the pictures and tables of docs/diagrams.md: `make gallery`."""

from pathlib import Path

from torch import Tensor, nn

import rankscope
from rankscope.diagrams.families.catalogue import FAMILIES, build_family
from rankscope.diagrams.network import Drawable
from rankscope.drawing.layout.placement import View
from rankscope.drawing.themes import DARK, PRINT
from rankscope.files import write_atomically

HERE = Path(__file__).parent
PICTURES = HERE / "pictures"
SIZED = {"N": 512, "M": 512, "F": 768}


class PerceptronWithResidual(nn.Module):
    """Linear, ReLU, Linear, added to the input."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(64, 256)
        self.outer = nn.Linear(256, 64)

    def forward(self, inputs: Tensor) -> Tensor:
        """Residual block."""
        outputs: Tensor = inputs + self.outer(self.inner(inputs).relu())
        return outputs


def extras() -> dict[str, Drawable]:
    """Pictures beyond the families."""
    convolutional = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.ReLU(), nn.Flatten(), nn.Linear(512, 10)
    )
    encoder = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(256, 8, 1024, batch_first=True), 12, enable_nested_tensor=False
    )
    return {
        "einsum": rankscope.diagrams.from_einsum("abc,cde,bfg,gdh,eij,hik,fkl->ajl"),
        "residual": rankscope.from_module(PerceptronWithResidual().eval(), (10, 64)),
        "convolutional": rankscope.from_module(convolutional.eval(), (1, 3, 8, 8)),
        "attention-two-layers": rankscope.SelfAttention(depth=2, width=4, heads=2).diagram(),
        "transformer": rankscope.from_module(encoder.eval(), (1, 128, 256)),
    }


def cost_table() -> list[str]:
    """The attention forms side by side."""
    forms = {
        "multi-head, H = 12, D = 64": build_family("multi-head", SIZED | {"H": 12, "D": 64}),
        "CP form, R = DH = 768": build_family("cp-attention", SIZED | {"R": 768}),
        "CP form, R = H = 12": build_family("cp-attention", SIZED | {"R": 12}),
        "tunable core, R = DH = 768": build_family("tunable-attention", SIZED | {"R": 768}),
    }
    lines = ["| form (N = M = 512, F = 768) | parameters | operations | largest intermediate |"]
    lines.append("|---|---:|---:|---:|")
    for name, form in forms.items():
        counted = rankscope.cost(form)
        numbers = (counted.parameters, counted.flops, counted.largest_intermediate)
        lines.append(f"| {name} | " + " | ".join(f"{number:,}" for number in numbers) + " |")
    return lines


def family_pages() -> list[str]:
    """One picture per family, with its settings."""
    lines: list[str] = []
    for name, family in FAMILIES.items():
        rankscope.draw(build_family(name, {}), PICTURES / f"{name}.svg")
        settings = " ".join(setting.name for setting in family.settings)
        lines += [f"### {name}", "", family.summary, "", f"Settings: `{settings}`.", ""]
        lines += [f"![{family.title}](pictures/{name}.svg)", ""]
    return lines


def draw_variants() -> None:
    """Themes, sizes, a storyboard and a cut."""
    for name, drawable in extras().items():
        rankscope.draw(drawable, PICTURES / f"{name}.svg")
    attention = build_family("multi-head", SIZED | {"H": 12, "D": 64})
    rankscope.draw(attention, PICTURES / "multi-head-dark.svg", theme=DARK)
    rankscope.draw(attention, PICTURES / "multi-head-print.svg", theme=PRINT)
    sized = View(show_sizes=True, width_by_size=True)
    rankscope.draw(attention, PICTURES / "multi-head-sizes.svg", view=sized)
    single = build_family("single-head", SIZED | {"D": 64})
    rankscope.draw(single, PICTURES / "storyboard.svg", steps=True)
    train = build_family("tensor-train", {"order": 6, "size": 4, "rank": 3})
    assert isinstance(train, rankscope.Diagram)
    cut = rankscope.diagrams.minimal_cut(train, ("i1", "i3", "i5"), ("i2", "i4", "i6"))
    rankscope.draw(train, PICTURES / "cut.svg", view=View(cut=cut.indices))


def replace_section(text: str, name: str, lines: list[str]) -> str:
    """Put lines between the two comments that mark a made section."""
    start, end = f"<!-- {name}: made by docs/make_gallery.py -->", f"<!-- end of {name} -->"
    before, _, rest = text.partition(start)
    _, _, after = rest.partition(end)
    return "\n".join([before + start, "", *lines, "", end + after])


def main() -> None:
    """Draw everything and rewrite the made sections."""
    PICTURES.mkdir(exist_ok=True)
    page = HERE / "diagrams.md"
    text = page.read_text(encoding="utf-8")
    text = replace_section(text, "costs", cost_table())
    text = replace_section(text, "gallery", family_pages())
    draw_variants()
    write_atomically(page, text.encode())


if __name__ == "__main__":
    main()
