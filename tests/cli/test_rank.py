"""`rankscope rank`, `bounds` and `verify` from the command line."""

import json
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from safetensors.torch import save_file

from rankscope.cli.main import main


def answer(capsys: pytest.CaptureFixture[str], command: str) -> dict[str, Any]:
    assert main([*command.split(), "--json"]) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def complaint(capsys: pytest.CaptureFixture[str], command: str) -> str:
    assert main(command.split()) == 2
    return capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "rank"),
    [
        ("attention --depth 1 --width 4", 5),
        ("attention --depth 2 --width 3 --heads 1", 49),
        ("attention --depth 2 --width 3 --heads 1 --partition left-right --exact", 49),
        ("attention --depth 2 --width 3 --heads 1 --left 0,1,5", 49),
        ("attention --depth 2 --width 3 --heads 1 --partition random --seed 3", 49),
        ("attention --depth 2 --width 4 --heads 2 --tokens 4", 107),
        ("attention --depth 2 --width 4 --heads 4 --head-size 1 --tokens 4", 85),
        ("attention --depth 2 --width 6 --embedding-rank 2 --tokens 4", 18),
        ("attention --depth 2 --width 3 --tokens 3 --left 0", 39),
        ("attention --depth 2 --width 3 --tokens 3 --left 0,1", 43),
        ("attention --depth 2 --width 3 --tokens 3 --left 0,1 --output-position 2", 39),
        ("attention --depth 1 --width 2 --degree 9", 18),
        ("tensor-train --order 8 --size 2 --bond 3 --equal-cores", 16),
        ("tensor-train --order 8 --size 2 --bond 3 --partition left-right", 3),
        ("shallow --order 4 --size 3 --channels 5", 5),
        ("convolutional --tokens 8 --window 2 --templates 3 --channels 3,2,2", 81),
        ("convolutional --tokens 4 --window 4 --templates 2 --channels 5 --shared", 3),
        ("recurrent --tokens 8 --templates 2 --channels 2 --depth 2", 10),
        ("recurrent --tokens 8 --templates 2 --channels 2 --partition interleaved", 16),
        ("polynomial --inputs 4 --degree 3 --depth 2", 30),
    ],
)
def test_the_reference_values_come_out(
    capsys: pytest.CaptureFixture[str], command: str, rank: int
) -> None:
    found = answer(capsys, f"rank {command}")
    assert found["lower"] == rank
    assert found["upper"] is None or found["upper"] >= rank
    assert found["method"] == "exact"
    assert all(isinstance(prime, int) for prime in found["prime"])
    assert [type(count) for count in found["samples"]] == [int, int]
    assert found["failure_probability"] < 1e-6
    if found["upper"] == rank:
        assert found["failure_probability"] == 0


def test_a_certificate_is_written_and_proved(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "rank.json"
    command = ["rank", "attention", "--depth", "2", "--width", "2", "--certificate", str(path)]
    assert main(command) == 0
    assert "separation rank 18 exactly" in capsys.readouterr().out
    assert main(["verify", str(path)]) == 0
    assert capsys.readouterr().out.startswith("PROVED: For almost all weights")
    assert main(["verify", str(path), "--json", "--slow", "--jobs", "2"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["soundness"], document["conditions"]) == ("0", [])
    assert main(["verify", str(path), "--max-seconds", "1e-9"]) == 2
    assert "more than the 1e-09 s allowed" in capsys.readouterr().err


def test_a_false_certificate_fails_and_another_file_is_no_certificate(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "rank.json"
    command = "rank shallow --order 2 --size 3 --channels 2 --certificate"
    assert main([*command.split(), str(path)]) == 0
    document = json.loads(path.read_text(encoding="utf-8"))
    document["lower"] = 3  # more than there are channels
    for minor in document["minors"]:
        minor["rows"] = minor["columns"] = [[0, 3]]
    document["statement"] = document["statement"].replace("at least 2", "at least 3")
    path.write_text(json.dumps(document), encoding="utf-8")
    capsys.readouterr()
    assert main(["verify", str(path)]) == 1
    assert capsys.readouterr().out.startswith("FAILED")
    path.write_text("{}", encoding="utf-8")
    assert main(["verify", str(path)]) == 2
    assert "rank.json is no certificate" in capsys.readouterr().err
    assert main(["verify", str(tmp_path / "none.json")]) == 2


def test_an_interrupted_command_says_so(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("rankscope.rank.measuring.measure_rank", interrupt)
    command = "rank attention --depth 1 --width 2"
    assert main(command.split()) == 130
    assert capsys.readouterr().err == "rankscope: interrupted\n"
    assert main([*command.split(), "--checkpoint", str(tmp_path / "kept")]) == 130
    assert "goes on from its checkpoint" in capsys.readouterr().err


def test_numeric_and_epsilon_ranks_of_a_family(capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(capsys, "rank attention --depth 2 --width 2 --method numeric")
    assert (found["lower"], found["upper"], found["prime"]) == (18, 18, [])
    assert found["failure_probability"] is None
    train = "rank tensor-train --order 4 --size 2 --bond 2"
    near = answer(capsys, f"{train} --method epsilon --epsilon 1e9")
    assert (near["lower"], near["upper"], near["method"]) == (0, 0, "epsilon")
    for metric in ("supremum", "mean-absolute", "frobenius", "spectral"):
        found = answer(capsys, f"{train} --epsilon 0 --metric {metric} --samples 9")
        assert found["lower"] <= 4 <= found["upper"]
    recurrent = "rank recurrent --tokens 4 --templates 2 --channels 2 --method numeric"
    assert answer(capsys, recurrent)["lower"] == 2


def test_a_function_of_ones_own(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "powers.py").write_text(
        "import torch\n"
        "def power():\n"
        "    return lambda inputs: inputs.sum(dim=(1, 2)) ** 3\n"
        "def layer():\n"
        "    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(8, 5)).double()\n",
        encoding="utf-8",
    )
    inputs = torch.randn(20, 4, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    numpy.save(tmp_path / "inputs.npy", inputs.numpy())
    torch.save(inputs, tmp_path / "inputs.pt")
    save_file({"inputs": inputs}, tmp_path / "inputs.safetensors")
    for suffix in ("npy", "pt", "safetensors"):
        assert answer(capsys, f"rank powers:power --data inputs.{suffix}")["lower"] == 4
    assert answer(capsys, "rank powers:layer --data inputs.pt --output 3")["lower"] == 2
    assert answer(capsys, "rank powers:power --data inputs.pt --left 0 --epsilon 1e9")["upper"] == 0
    assert "cannot be measured exactly" in complaint(capsys, "rank powers:power --exact")
    assert "needs --data FILE" in complaint(capsys, "rank powers:power")
    assert "--depth does not apply" in complaint(capsys, "rank powers:power --data x --depth 2")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.csv", b"1,2", "'x.csv' ends in '.csv'; wanted .safetensors, .npz, .pt"),
        ("none.npy", None, "Cannot read 'none.npy': No such file"),
        ("x.npy", b"nonsense", "x.npy is damaged, or not what numpy.save writes"),
        ("x.pt", b"nonsense", "x.pt was not written by torch.save"),
        ("x.safetensors", b"nonsense", "x.safetensors is no safetensors file"),
    ],
)
def test_broken_data_is_refused(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    name: str,
    content: bytes | None,
    message: str,
) -> None:
    (tmp_path / "mine.py").write_text("def nothing(): return None\n", encoding="utf-8")
    if content is not None:
        (tmp_path / name).write_bytes(content)
    assert message in complaint(capsys, f"rank mine:nothing --data {name}")


def test_data_must_be_a_tensor_with_positions(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "mine.py").write_text("def nothing(): return None\n", encoding="utf-8")
    numpy.save(tmp_path / "x.npy", numpy.zeros(3))
    assert "(count, positions, …), got one of shape (3,)" in complaint(
        capsys, "rank mine:nothing --data x.npy"
    )


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("rank nonsense", "There is no model 'nonsense'. `rankscope models` lists the names"),
        ("rank attention", "attention needs --depth and --width"),
        ("rank attention --depth 2 --width 3 --bond 2", "--bond does not apply to attention"),
        ("rank attention --depth 0 --width 3", "--depth must be a positive number, got 0"),
        ("rank shallow --order 2 --size 2 --channels 2,2", "--channels of shallow is one number"),
        ("rank shallow --order 2 --size 2 --channels x", "--channels takes 3 or 3,3,3, got 'x'"),
        ("rank attention --depth 1 --width 2 --partition odd", "--partition takes interleaved"),
        ("rank attention --depth 1 --width 2 --left a", "--left takes positions like 0,2,4"),
        ("rank attention --depth 1 --width 2 --left 9", "got 9"),
        ("rank attention --depth 1 --width 2 --left 0 --partition random", "not both"),
        ("rank attention --depth 1 --width 2 --left 0,1,2,3", "must hold a position"),
        ("rank attention --depth 1 --width 2 --prime 10", "10 is not a prime"),
        ("rank attention --depth 1 --width 2 --prime 2147483659", "below 2147483648"),
        ("rank attention --depth 1 --width 2 --method magic", "--method takes exact, numeric"),
        ("rank attention --depth 1 --width 2 --method epsilon", "go together"),
        ("rank attention --depth 1 --width 2 --epsilon 1 --metric x", "--metric takes mean-square"),
        ("rank attention --depth 1 --width 2 --exact --method numeric", "--exact contradicts"),
        ("rank attention --depth 1 --width 2 --samples 9", "--samples belongs to --method numeric"),
        ("rank attention --depth 1 --width 2 --method numeric --prime 7", "certifies nothing"),
        ("rank attention --depth 1 --width 2 --method numeric --data x.npy", "--data goes with"),
        ("rank attention --depth 1 --width 2 --backend x", "the backend must be one of"),
        ("bounds attention --depth 1 --width 2 --output-position 4", "must lie in 0..3, got 4"),
    ],
)
def test_bad_requests_are_one_line_with_the_way_out(
    capsys: pytest.CaptureFixture[str], command: str, message: str
) -> None:
    said = complaint(capsys, command)
    assert message in said
    assert said.count("\n") == 1


def test_bounds_are_null_where_no_theorem_applies(capsys: pytest.CaptureFixture[str]) -> None:
    for sizes in ("--depth 2 --width 9", "--depth 3 --width 4 --heads 4"):
        found = answer(capsys, f"bounds attention {sizes}")
        assert found["lower_log3"] is None
        assert found["upper_log3"] is None
        assert found["count"] > 0


def test_bounds_hold_their_published_values(capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(capsys, "bounds attention --depth 2 --width 16")
    assert found["lower_log3"] == pytest.approx(1.834, abs=5e-4)
    assert found["upper_log3"] == pytest.approx(10.316, abs=5e-4)
    assert answer(capsys, "bounds attention --depth 3 --width 4")["count"] == 31460
    assert answer(capsys, "bounds attention --depth 2 --width 3 --tokens 3 --left 0")["count"] == 41


def test_bounds_of_the_largest_model(capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(capsys, "bounds attention --depth 96 --width 12288 --heads 96")
    assert found["count"] is None
    assert found["count_log3"] > found["lower_log3"] > 0
    assert found["best_upper"] is None
    assert found["best_upper_log3"] > found["count_log3"] > found["best_lower_log3"]


@pytest.mark.parametrize(
    ("command", "lower", "count"),
    [
        ("tensor-train --order 8 --size 2 --bond 3", 16, 16),
        ("shallow --order 4 --size 3 --channels 5", 5, 5),
        ("convolutional --tokens 8 --templates 3 --channels 3,2,2", 81, 81),
        ("recurrent --tokens 8 --templates 2 --channels 2 --depth 2", 5, 10),
        ("polynomial --inputs 4 --degree 3 --depth 2", 10, 30),
    ],
)
def test_bounds_of_the_other_families(
    capsys: pytest.CaptureFixture[str], command: str, lower: int | None, count: int
) -> None:
    found = answer(capsys, f"bounds {command}")
    assert found["count"] == count
    assert (found["lower_log3"] is None) == (lower is None)
    if lower is not None:
        assert 3 ** found["lower_log3"] == pytest.approx(lower)
    assert main(["bounds", *command.split()]) == 0
    said = capsys.readouterr().out
    assert said.startswith("best proved")
    assert "no theorem" not in said
    assert found["best_upper"] == count
    is_recalled = command.startswith("recurrent")
    assert found["best_lower"] == (None if is_recalled else lower)


def test_the_best_proved_interval_stands_first(capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(capsys, "bounds attention --depth 4 --width 6")
    assert found["best_lower"] == 759_696
    assert found["best_upper"] < found["count"]  # common zeros
    assert found["lower_log3"] == 0
    assert main(["bounds", "attention", "--depth", "4", "--width", "6"]) == 0
    first, second, *others = capsys.readouterr().out.splitlines()
    assert "separation rank >= 759,696 for almost all weights" in first
    assert f"separation rank <= {found['best_upper']:,} " in second
    assert all(line.startswith("best proved") for line in (first, second))
    assert all(line.startswith("also") for line in others)
    refined = answer(capsys, "bounds attention --depth 2 --width 4 --heads 2")
    assert (refined["best_upper"], refined["count"]) == (107, 110)


def test_theorems_for_balanced_splits_are_left_out_for_others(
    capsys: pytest.CaptureFixture[str],
) -> None:
    command = "bounds attention --depth 4 --width 6 --left 0"
    found = answer(capsys, command)
    assert (found["lower_log3"], found["upper_log3"]) == (None, None)
    assert found["best_lower"] <= found["best_upper"] <= found["count"]
    assert main(command.split()) == 0
    assert "Thm 7.2" not in capsys.readouterr().out


@pytest.mark.slow
def test_bounds_are_printed_outwards_and_never_overflow(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["bounds", "attention", "--depth", "700", "--width", "8"]) == 0
    said = capsys.readouterr().out
    assert "separation rank <= 3^25069.1 " in said
    assert "separation rank <= 3^(3^700.001) " in said


def test_few_tokens_that_cannot_be_counted_have_the_bound_of_more(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = answer(capsys, "bounds attention --depth 6 --width 64 --tokens 20")
    assert (found["count"], found["count_log3"]) == (None, None)
    assert found["best_upper_log3"] > found["best_lower_log3"] > 0


def test_growth_rates_of_the_embedding_rank_are_printed_with_their_conditions(
    capsys: pytest.CaptureFixture[str],
) -> None:
    command = "bounds attention --depth 3 --width 9 --embedding-rank 3"
    symbols = [growth["symbol"] for growth in answer(capsys, command)["growths"]]
    assert symbols == ["O~", "Omega~"]
    assert main(command.split()) == 0
    said = capsys.readouterr().out
    assert "O~(depth * min(embedding rank, width)), which bounds no number" in said
    assert "eq. (7.12)" in said
    assert "eq. (7.13)" in said
    shallow = answer(capsys, f"{command.replace('depth 3', 'depth 2')}")
    assert [growth["symbol"] for growth in shallow["growths"]] == ["O~"]
    assert answer(capsys, "bounds attention --depth 3 --width 9")["growths"] == []


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("attention --depth 2 --width 3 --tokens 200000000", "--tokens may be at most 1,048,576"),
        ("polynomial --inputs 4 --degree 2 --depth 65536", "--depth may be at most 10,000"),
        ("polynomial --inputs 4 --degree 20 --depth 9999", "--depth times --degree may be at most"),
        (
            "recurrent --tokens 4 --templates 2 --channels 2 --depth 2147483647",
            "--depth may be at most 10,000, got 2,147,483,647",
        ),
        ("recurrent --tokens 4 --templates 2 --channels 2 --depth 65", "depth must be at most 64"),
        (
            f"recurrent --tokens 4 --templates 2 --channels {10**40}",
            "--channels may be at most 1,000,000, got about 10^40",
        ),
        ("mixed-polynomial --inputs 4 --width 2 --degrees 90000,90000", "the sum of --degrees"),
    ],
)
def test_sizes_that_nobody_can_build_are_refused_at_once(
    capsys: pytest.CaptureFixture[str], command: str, message: str
) -> None:
    said = complaint(capsys, f"bounds {command}")
    assert message in said
    assert said.count("\n") == 1
