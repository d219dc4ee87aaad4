"""The tables in the pages are those of the committed results."""

import importlib.util
import re
import shutil
from pathlib import Path

import pytest

from rankscope.lab.experiments import RunOptions, find_experiment, run_experiment

DOCS = Path(__file__).parents[1] / "docs"
specification = importlib.util.spec_from_file_location(
    "make_experiment_tables", DOCS / "make_experiment_tables.py"
)
assert specification is not None
assert specification.loader is not None
tables = importlib.util.module_from_spec(specification)
specification.loader.exec_module(tables)


@pytest.mark.parametrize(
    "page",
    sorted([*DOCS.glob("*.md"), *DOCS.glob("experiments/*.md")]),
    ids=lambda path: path.name,
)
def test_a_page_shows_the_results_as_they_are(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert tables.filled(text, page.parent) == text, "run `make experiment-tables`"


def test_a_place_without_results_says_so() -> None:
    page = "<!-- results: no-such -->\nold\n<!-- end -->\n"
    assert "No row has been computed yet." in tables.filled(page)


def test_verdicts_stand_out_and_other_words_do_not() -> None:
    open_pair = "A: +1 nats: not decided yet: rows are missing."
    assert tables._emphasized(f"{open_pair} In all: 1 undecided.") == (
        "A: +1 nats: **not decided yet: rows are missing**. In all: 1 undecided."
    )
    assert tables._emphasized("decided, not as claimed") == "**decided**, not as claimed"
    assert tables._emphasized("undecided") == "**undecided**"
    assert tables._emphasized("Pairs that are decided: 9 of 9.") == (
        "Pairs that are decided: 9 of 9."
    )


def test_results_are_noted_with_their_command_time_and_figure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "RESULTS", tmp_path / "results")
    folder = tmp_path / "results" / "reshaping"
    options = RunOptions(only=("random-64-to-64-at-1.2",), seeds=1, seconds=120.0)
    run_experiment(find_experiment("reshaping"), folder, options)
    (folder / "figure.svg").write_text("<svg/>")
    page = "<!-- results: reshaping -->\n<!-- end -->\n"
    text = tables.filled(page, tmp_path / "experiments")
    assert "| random-64-to-64-at-1.2 | 1 |" in text
    assert "](../results/reshaping/figure.svg)" in text
    command = "rankscope experiment run reshaping -o docs/results/reshaping --seeds 1 --minutes 2"
    assert command in text
    assert "minutes of processor time in all; 23 of 24 rows are still to be computed." in text


def test_a_planted_false_sentence_fails_the_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "experiments").mkdir()
    page = tmp_path / "experiments" / "shallow-vs-deep.md"
    text = (DOCS / "experiments" / "shallow-vs-deep.md").read_text(encoding="utf-8")
    page.write_text(text, encoding="utf-8")
    monkeypatch.setattr(tables, "HERE", tmp_path)
    monkeypatch.setattr(tables, "RESULTS", tmp_path / "results")
    shutil.copytree(DOCS / "results" / "shallow-vs-deep", tmp_path / "results" / "shallow-vs-deep")
    tables.main(["--check"])
    # A number, a verdict, and a sentence of its own: none of them is what the rows say.
    decided = "a tree against a sum of products: +0.277 ± 0.063 points over 3 seeds, better"
    assert decided in text
    for old, new in (
        (decided, decided.replace("better", "worse")),
        (decided, decided.replace("0.277", "0.977")),
        ("**undecided**", "**decided**"),
    ):
        page.write_text(text.replace(old, new), encoding="utf-8")
        with pytest.raises(SystemExit, match=r"shallow-vs-deep\.md does not say what its rows say"):
            tables.main(["--check"])
    for planted in ("Trees are better by 3.1 ± 0.2 points.", "**What it says.** Rank decides."):
        page.write_text(f"{text}\n{planted}\n", encoding="utf-8")
        with pytest.raises(SystemExit, match="claims something that no rows were asked for"):
            tables.main([])
    assert capsys.readouterr().out == ""


def test_every_experiment_has_a_line_that_says_what_is_decided() -> None:
    text = (DOCS / "experiments" / "README.md").read_text(encoding="utf-8")
    for name, page in tables.PAGES.items():
        assert f"| [{name}]({page}) |" in text
        assert (DOCS / "experiments" / page).is_file()


def test_every_experiment_that_a_page_shows_declares_what_it_is_to_decide() -> None:
    pages = [*DOCS.glob("*.md"), *DOCS.glob("experiments/*.md")]
    shown = {
        name
        for page in pages
        for name in re.findall(r"<!-- results: (\S+) -->", page.read_text(encoding="utf-8"))
    }
    assert set(tables.PAGES) == shown
    for name in shown:
        experiment = find_experiment(name)
        assert experiment.claims is not None, name
        assert experiment.claims.question.endswith("?"), name
        settings = {entry.name for entry in experiment.entries}
        for pair in experiment.claims.pairs:
            assert pair.first in settings, f"{name}: {pair.first}"
            assert pair.second in settings or pair.second.startswith(":"), f"{name}: {pair.second}"


def test_figures_are_drawn_again_from_committed_rows_without_computing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib")
    committed = DOCS / "results" / "pronunciation-compression"
    folder = tmp_path / "results" / committed.name
    shutil.copytree(committed, folder)
    (tmp_path / "results" / "reshaping").mkdir()  # without a figure: still computed
    monkeypatch.setattr(tables, "HERE", tmp_path)
    monkeypatch.setattr(tables, "RESULTS", tmp_path / "results")
    (folder / "figure.svg").write_text("<svg/>")
    tables.main(["--figures"])
    for name in ("figure.svg", "results.json", "table.md"):
        assert (folder / name).read_bytes() == (committed / name).read_bytes(), name
    assert sorted(path.name for path in folder.iterdir()) == [
        "figure.svg", "results.json", "table.md",
    ]  # fmt: skip


def test_rows_that_a_killed_run_left_are_packed_before_a_page_shows_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "results" / "reshaping"
    options = RunOptions(only=("random-64-to-64-at-1.2",), seeds=1, seconds=120.0)
    run_experiment(find_experiment("reshaping"), folder, options)
    kept = (folder / "results.json").read_bytes()
    (folder / "results.json").unlink()  # the row is in a file of its own, which git ignores
    monkeypatch.setattr(tables, "HERE", tmp_path)
    monkeypatch.setattr(tables, "RESULTS", tmp_path / "results")
    tables.main([])
    assert (folder / "results.json").read_bytes() == kept
