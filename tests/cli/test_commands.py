import json
from pathlib import Path

import pytest

from rankscope.cli.main import main
from rankscope.diagrams import to_dict
from rankscope.diagrams.families import build_family


def document(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    assert main([*arguments, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert isinstance(found, dict)
    return found


def test_the_cost_of_a_matrix_product(capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ["--size", "i=64", "--size", "j=32", "--size", "k=16"]
    found = document(["cost", "ij,jk->ik", *sizes], capsys)
    assert found["parameters"] == 0
    assert found["flops"] == 2 * 64 * 32 * 16
    assert found["largest_intermediate"] == 64 * 16
    assert found["path"] == [[[0, 1]]]


def test_an_operand_marked_as_parameter_is_counted(capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ["--size", "i=64", "--size", "j=32", "--size", "k=16"]
    found = document(["cost", "ij,jk->ik", *sizes, "--parameter", "1"], capsys)
    assert found["parameters"] == 32 * 16


def test_the_cost_of_multi_head_attention(capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ["N=512", "M=512", "F=768", "H=12", "D=64"]
    settings = [word for size in sizes for word in ("--set", size)]
    found = document(["cost", "multi-head", *settings], capsys)
    assert found["parameters"] == 4 * 768 * 768
    assert found["largest_intermediate"] == 12 * 512 * 512
    projections, attention = 4 * 2 * 512 * 768 * 768, 2 * 2 * 12 * 512 * 512 * 64
    assert found["flops"] == projections + attention
    path = found["path"]
    assert isinstance(path, list)
    assert len(path) == 2


@pytest.mark.parametrize(
    ("family", "settings", "parameters"),
    [
        ("mlp", "widths=784,256,10", 784 * 256 + 256 * 10),
        ("tucker2-conv", "S=16 T=32 k=3 R1=4 R2=8 H=10 W=12", 16 * 4 + 4 * 8 * 9 + 8 * 32),
        (
            "tucker2-conv",
            "S=16 T=32 k=3 R1=4 R2=8 H=10 W=12 stride=2 padding=1",
            16 * 4 + 4 * 8 * 9 + 8 * 32,
        ),
        ("matrix-product", "I=2 J=3 K=4", 2 * 3 + 3 * 4),
        ("outer-product", "I=2 J=3", 2 + 3),
        ("cp", "order=4 size=5 rank=3", 4 * 5 * 3),
        ("tucker", "order=4 size=5 rank=3", 3**4 + 4 * 5 * 3),
        ("tensor-train", "order=4 size=5 rank=3", 2 * 15 + 2 * 45),
        ("tt-matrix", "order=4 size=5 rank=3 out=2", 2 * 30 + 2 * 90),
        ("tensor-ring", "order=4 size=5 rank=3", 4 * 45),
        ("hierarchical-tucker", "order=4 size=5 rank=3", 4 * 15 + 2 * 27 + 9),
        ("single-head", "N=8 M=8 F=16 D=4", 3 * 16 * 4),
        ("grouped-query", "N=8 M=8 F=16 H=4 D=4 G=2", 2 * 16 * 16 + 2 * 16 * 8),
        ("cp-attention", "N=8 M=8 F=16 H=4 D=4 R=5", 4 * 16 * 5),
        ("tunable-attention", "N=8 M=8 F=16 H=4 D=4 R=5", 4 * 16 * 5 + 25),
    ],
)
def test_the_fixed_symbols_are_enough_to_price_a_family(
    family: str, settings: str, parameters: int, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [word for setting in settings.split() for word in ("--set", setting)]
    assert document(["cost", family, *words], capsys)["parameters"] == parameters


def test_set_and_size_are_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    by_set = document(["cost", "cp", "--set", "size=4", "--set", "rank=2"], capsys)
    by_size = document(["cost", "cp", "--size", "size=4", "--size", "rank=2"], capsys)
    assert by_set == by_size
    assert by_set["parameters"] == 2 * (4 + 4 + 4)


@pytest.mark.parametrize("method", ["automatic", "exhaustive", "greedy", "cotengra"])
def test_the_method_of_the_order_search_is_a_choice(
    method: str, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = ["--set", "order=4", "--set", "size=3", "--set", "rank=2"]
    found = document(["cost", "tensor-train", *settings, "--method", method], capsys)
    assert found["parameters"] == 2 * 3 * 2 + 2 * 2 * 3 * 2


def test_without_json_the_cost_is_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cost", "cp", "--set", "size=4", "--set", "rank=2"]) == 0
    assert "parameters" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("ending", "start"),
    [
        ("svg", b"<svg"),
        ("pdf", b"%PDF"),
        ("png", b"\x89PNG"),
        ("tikz", b"%"),
        ("gif", b"GIF89a"),
        ("html", b"<!doctype html>"),
    ],
)
def test_the_ending_chooses_the_format(
    ending: str, start: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes = ["--size", "i=2", "--size", "j=3", "--size", "k=4"]
    assert main(["draw", "ij,jk->ik", *sizes, "-o", f"picture.{ending}"]) == 0
    assert capsys.readouterr().out == f"picture.{ending}\n"
    assert Path(f"picture.{ending}").read_bytes()[: len(start)].lower() == start.lower()
    assert [path.name for path in Path.cwd().iterdir()] == [f"picture.{ending}"]


def test_steps_draw_a_storyboard(capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ["--size", "i=2", "--size", "j=3", "--size", "k=4"]
    assert main(["draw", "ij,jk->ik", *sizes, "--steps", "-o", "story.svg"]) == 0
    assert main(["draw", "ij,jk->ik", *sizes, "-o", "whole.svg"]) == 0
    assert capsys.readouterr().out == "story.svg\nwhole.svg\n"
    assert len(Path("story.svg").read_text()) > len(Path("whole.svg").read_text())


def test_without_an_output_the_file_is_named_after_the_diagram(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = document(["draw", "multi-head", "--theme", "dark"], capsys)
    path = Path(str(found["file"]))
    assert path.suffix == ".svg"
    assert path.stat().st_size == found["bytes"]
    assert main(["draw", "ij,jk->ik"]) == 0
    assert capsys.readouterr().out == "ij_jk_ik.svg\n"


def test_a_module_in_the_current_folder_is_found(capsys: pytest.CaptureFixture[str]) -> None:
    Path("my_layers_for_a_test.py").write_text(
        "from torch import nn\nprint('importing')\n"
        "def make():\n    print('making')\n"
        "    return nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 4))\n"
        "layer = nn.Linear(3, 2, bias=False)\n"
    )
    found = document(["cost", "my_layers_for_a_test:make", "--input", "7,6"], capsys)
    assert found["parameters"] == 6 * 5 + 5 + 5 * 4 + 4
    found = document(["cost", "my_layers_for_a_test:layer", "--input", "7,3"], capsys)
    assert found["flops"] == 2 * 7 * 3 * 2
    assert main(["draw", "my_layers_for_a_test:make", "--input", "7,6", "-o", "m.svg"]) == 0


def test_a_saved_diagram_is_read_back(capsys: pytest.CaptureFixture[str]) -> None:
    Path("product.json").write_text(json.dumps(to_dict(build_family("matrix-product", {"I": 2}))))
    found = document(["cost", "product.json", "--size", "J=3", "--size", "K=4"], capsys)
    assert found["flops"] == 2 * 2 * 3 * 4
    assert main(["draw", "product.json", "-o", "product.svg"]) == 0


def test_a_factory_may_return_a_diagram(capsys: pytest.CaptureFixture[str]) -> None:
    Path("my_diagrams_for_a_test.py").write_text(
        "from rankscope.diagrams import from_einsum\n"
        "def make():\n    return from_einsum('ij,jk->ik')\n"
    )
    sizes = ["--size", "i=2", "--size", "j=3", "--size", "k=4"]
    found = document(["cost", "my_diagrams_for_a_test:make", *sizes], capsys)
    assert found["flops"] == 2 * 2 * 3 * 4


def test_the_minimal_cut_of_a_matrix_product(capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ["--size", "i=6", "--size", "j=2", "--size", "k=5"]
    arguments = ["cut", "ij,jk->ik", *sizes, "--left", "i", "--right", "k"]
    found = document(arguments, capsys)
    assert found["value"] == 2
    assert found["indices"] == ["j"]
    assert main([*arguments, "-o", "cut.svg"]) == 0
    assert "cut" in Path("cut.svg").read_text()


def test_code_prints_a_module_or_an_einsum_program(capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ["--size", "i=2", "--size", "j=3", "--size", "k=4"]
    assert main(["code", "ij,jk->ik", *sizes]) == 0
    assert "nn.Module" in capsys.readouterr().out
    assert main(["code", "ij,jk->ik", "--einsum"]) == 0
    assert "ij,jk->ik" in capsys.readouterr().out
    assert main(["code", "ij,jk->ik", *sizes, "-o", "product.py"]) == 0
    assert "nn.Module" in Path("product.py").read_text()


def test_families_are_listed_with_their_settings(capsys: pytest.CaptureFixture[str]) -> None:
    found = document(["families"], capsys)
    assert {"multi-head", "tensor-train", "tucker2-conv"} <= found.keys()
    assert main(["families"]) == 0
    assert "tensor-train" in capsys.readouterr().out
