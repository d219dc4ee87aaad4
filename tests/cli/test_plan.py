"""`rankscope plan` from the command line."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from rankscope.cli.main import main

DATA = Path(os.environ.get("RANKSCOPE_SHARED") or Path(__file__).parents[3] / "shared" / "data")
CONFIGS = DATA / "configs"


def answer(capsys: pytest.CaptureFixture[str], command: str) -> dict[str, Any]:
    assert main(["plan", *command.split(), "--json"]) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def gpt2(folder: Path, depth: int, width: int) -> Path:
    sizes = {"n_layer": depth, "n_embd": width, "n_head": 4, "n_positions": 64, "vocab_size": 500}
    folder.mkdir(parents=True)
    path = folder / "config.json"
    path.write_text(json.dumps({"model_type": "gpt2", **sizes}), encoding="utf-8")
    return path


def test_the_largest_gpt3(capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(capsys, f"--params {12 * 96 * 12288**2}")
    assert (found["depth"], found["width"]) == (80, 13440)
    assert found["heads"] * found["head_size"] == 13440
    assert round(found["depth_real"], 2) == 80.46
    assert (round(found["depth_low"], 1), round(found["depth_high"], 1)) == (78.3, 82.7)
    assert found["law"]["b_error"] == 0.0013
    assert 80 in [row["depth"] for row in found["alternatives"]]


def test_options_reach_the_plan(capsys: pytest.CaptureFixture[str]) -> None:
    command = "--total-params 1.3e9 --vocab 50257 --heads 16 --multiple-of 64 --max-depth 30"
    found = answer(capsys, command)
    assert (found["depth"], found["heads"], found["width"] % 64) == (30, 16, 0)
    assert found["budget"] == {"parameters": 1.3e9, "is_total": True}
    assert found["embedding"]["vocabulary"] == 50257
    found = answer(capsys, "--params 1.3e9 --embedding-rank 1024 --head-size 128")
    assert (found["width"], found["head_size"]) == (1024, 128)


def test_models_are_compared_by_the_name_of_their_folder_or_file(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    first, second = gpt2(tmp_path / "tiny", 2, 64), gpt2(tmp_path / "other" / "tiny", 3, 64)
    third = tmp_path / "third.json"
    third.write_bytes(first.read_bytes())
    command = f"--params 1e8 --compare {first} {second.parent} --compare {third}"
    found = answer(capsys, command)["compared"]
    # Repeated options come first, further words after them; a name that is taken becomes a path.
    assert [model["name"] for model in found] == ["tiny", "third", str(second.parent)]
    assert [model["depth"] for model in found] == [2, 2, 3]


def test_the_table_says_what_was_planned_and_why(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = gpt2(tmp_path / "tiny", 2, 64)
    picture = tmp_path / "plan.svg"
    command = ["plan", "--params", "1.3e9", "--vocab", "50257", "--compare", str(path)]
    assert main([*command, "-o", str(picture)]) == 0
    out = capsys.readouterr().out
    for text in ("the law gives 42.2 (40.9 to 43.5)", "0.0555 ± 0.0013", "planned", "tiny"):
        assert text in out
    assert out.splitlines()[-1] == str(picture)
    assert picture.read_bytes().startswith(b"<?xml")


def test_the_picture_is_named_in_the_document(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    found = answer(capsys, f"--params 1e8 -o {tmp_path / 'plan.png'}")
    assert found["file"] == str(tmp_path / "plan.png")


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("", "got 0 of the two"),
        ("--params 0", "got 0"),
        ("--params -5", "got -5"),
        ("--params nan", "got nan"),
        ("--params 1000", "1,000 parameters are fewer than 49,152"),
        ("--total-params 1e9", "give the vocabulary"),
        ("--total-params 1e6 --vocab 50257", "fewer than 3,265,600: 3,216,448 of the embedding"),
        ("--params 1e9 --max-depth 0", "max depth must be at least 1, got 0"),
        ("--params 1e6 --heads 5000", "multiples of 5,000"),
        ("--params 1e9 --compare nowhere.json", "nowhere.json"),
        ("--params 1e9 -o plan.gif", "'plan.gif'"),
    ],
)
def test_bad_requests_are_refused_in_one_line(
    command: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", *command.split()]) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.err.count("\n") == 1
    assert not captured.out


@pytest.mark.skipif(not CONFIGS.is_dir(), reason="the shared configurations are not here")
def test_real_models_beside_the_law(capsys: pytest.CaptureFixture[str]) -> None:
    names = ("gpt3-175B-en", "t5-11b", "llama2_70b")
    paths = " ".join(str(CONFIGS / f"{name}.json") for name in names)
    found = {
        row["name"]: row for row in answer(capsys, f"--params 1e9 --compare {paths}")["compared"]
    }
    assert round(found["gpt3-175B-en"]["depth_real"], 2) == 80.46
    assert found["gpt3-175B-en"]["verdict"] == "deeper than the law"
    assert found["t5-11b"]["total_parameters"] == 11_307_321_344
    assert set(found) == set(names)
