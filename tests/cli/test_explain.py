import json
from pathlib import Path

import pytest

from rankscope.cli.main import main
from rankscope.lab.experiments import TOPICS, find_topic


def test_without_a_topic_all_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain"]) == 0
    text = capsys.readouterr().out
    assert all(f"  {name} " in text for name in TOPICS)
    assert main(["explain", "--json"]) == 0
    groups = json.loads(capsys.readouterr().out)["topics"]
    assert [name for group in groups.values() for name in group] == list(TOPICS)


def test_a_topic_is_explained_in_words_and_numbers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", "attention-example", "-o", str(tmp_path / "pictures")]) == 0
    text = capsys.readouterr().out
    assert "0.88, 0.12" in text
    assert "Reference: Levine et al. (2022)" in text
    picture = tmp_path / "pictures" / "attention-example-steps.svg"
    assert text.splitlines()[-1] == str(picture)
    assert picture.is_file()


def test_assumptions_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "recurrent-attention"]) == 0
    assert "Assumes: inner products" in capsys.readouterr().out


@pytest.mark.slow
def test_json_has_the_promised_keys(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "multi-head-attention", "-o", str(tmp_path), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["statement"] == find_topic("multi-head-attention").statement
    assert result["reference"]["arxiv"] == "1706.03762"
    assert result["numbers"]["equal to torch's module"] is True
    assert set(result["measured"]) < set(result["numbers"])
    assert all(Path(path).is_file() for path in result["pictures"].values())


def test_an_unknown_topic_is_a_wrong_request(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "everything", "--json"]) == 2
    result = capsys.readouterr()
    assert "no topic 'everything'; choose one of piecewise-linear" in result.err
    assert "choose one of" in json.loads(result.out)["error"]
