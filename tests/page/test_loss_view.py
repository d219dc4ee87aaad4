"""Predicted losses: measured once on a text of the model's folder, then part of every plan."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.page.conftest import REQUEST, Served, over, plan, serve_in_thread, until
from tests.page.small_models import save_llama

from rankscope.errors import RequestError
from rankscope.models import open_model
from rankscope.page import Session
from rankscope.page.loss_work import scoring_of_table, sources
from rankscope.progress import ignore

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("losses") / "output"


@pytest.fixture(scope="module")
def measured(output: Path) -> Iterator[Served]:
    """The embedded transformer, with losses measured on its own text."""
    for served in serve_in_thread(Session(None, output)):
        until(lambda: served.ask("/model")["candidates"])  # noqa: B023
        assert served.ask("/losses")["sources"] == ["held_out.txt", "training.txt"]
        job = served.ask("/losses/measure", {"source": "held_out.txt"})["job"]
        done = over(served, job["number"])
        assert (done["state"], done["error"]) == ("done", None)
        assert done["progress"]["what"] == "weights"
        yield served


def predicted(served: Served, keep: float) -> float:
    score = plan(served, "quick", keep=keep)["score"]
    assert isinstance(score, float)
    return score


def test_plans_predict_the_loss_once_it_was_measured(measured: Served) -> None:
    known = measured.ask("/model")["candidates"]
    assert (known["scoring"], known["source"]) == ("loss", "held_out.txt")
    assert 1.0 < known["loss"] < 4.0  # nats per character: better than chance, which is 5
    changes = [predicted(measured, keep) for keep in (1.0, 0.8, 0.5, 0.2)]
    assert changes[0] == 0.0
    assert changes == sorted(changes)
    assert changes[-1] > 0.1


def test_a_plan_with_a_loss_is_saved_with_factors_that_fit_outputs(
    measured: Served, output: Path
) -> None:
    job = measured.ask("/save", {**REQUEST, "name": "smaller"})["job"]
    assert over(measured, job["number"])["state"] == "done"
    assert '"scoring": "loss"' in (output / "smaller" / "plan.json").read_text()


def test_measured_losses_are_found_again(measured: Served, output: Path) -> None:
    for served in serve_in_thread(Session(None, output)):
        known = until(lambda: served.ask("/model")["candidates"])  # noqa: B023
        assert (known["source"], known["was_cached"]) == ("held_out.txt", True)


@pytest.mark.parametrize("name", ["../config.json", "/etc/passwd", "vocab.json", ""])
def test_only_texts_of_the_opened_folder_are_read(measured: Served, name: str) -> None:
    with pytest.raises(ValueError, match=r"can be measured on held_out\.txt, training\.txt"):
        measured.ask("/losses/measure", {"source": name})


def test_a_text_that_changed_since_is_refused(measured: Served, output: Path) -> None:
    (table,) = (output / "candidates").glob("*-*/table.json")
    other = table.parent.with_name(f"{table.parent.name[:-16]}{'0' * 16}")
    shutil.copytree(table.parent, other)
    opened: Any = open_model("transformer")
    with pytest.raises(RequestError, match=r"held_out\.txt has changed since"):
        scoring_of_table(opened, other / "table.json", [], ignore)
    shutil.rmtree(other)


def test_what_has_no_text_has_no_sources(tmp_path: Path) -> None:
    model = save_llama(tmp_path / "llama", depth=2)
    assert sources(str(model)) == []
    (model / "notes.txt").write_text("a text")
    (model / "notes.md").write_text("no text")
    assert sources(str(model)) == ["notes.txt"]
    assert sources("digits") == ["digits"]
    assert sources("lstm-language-model") == []
