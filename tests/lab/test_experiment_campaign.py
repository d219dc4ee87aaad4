"""Campaigns: many experiments, killed and gone on with, within their hours."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from rankscope.cli.main import main
from rankscope.errors import ExperimentError, OutputError
from rankscope.lab.experiments import Campaign, Item, Row, read_campaign, read_outcome
from rankscope.resumable import ResumableFolder

ROW, OTHER = "random-64-to-64-at-1.2", "random-64-to-64-at-2.5"
SHORT = Item("reshaping", only=(ROW, OTHER))


@pytest.fixture(autouse=True)
def _same_priority(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests go on at their own priority."""
    monkeypatch.setattr(os, "nice", lambda increment: increment)


SHARED = """
[[experiments]]
name = "reshaping"
folder = "x"
[[experiments]]
name = "tt-digits"
folder = "x"
"""


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


# The file.


def test_a_campaign_is_a_list_of_experiments_with_options(tmp_path: Path) -> None:
    text = """
    [[experiments]]
    name = "reshaping"
    [[experiments]]
    name = "tt-digits"
    folder = "digits"
    only = ["equal-cores"]
    seeds = 5
    minutes = 2
    hours = 0.5
    quick = true
    """
    wanted = (
        Item("reshaping"),
        Item("tt-digits", "digits", ("equal-cores",), 5, 2.0, 0.5, quick=True),
    )
    assert read_campaign(write(tmp_path / "campaign.toml", text)) == wanted
    plain = {"experiments": [{"name": "reshaping"}]}
    assert read_campaign(write(tmp_path / "c.json", json.dumps(plain))) == wanted[:1]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[experiments]", r"campaign\.toml is not usable TOML: .*line 1"),
        ("", "it is empty"),
        ("name = 1", r"campaign\.toml, at top: wanted only the keys experiments"),
        ("experiments = []", "wanted at least one of .*, got none"),
        (
            "[[experiments]]\nname = 'depth-with'",
            "no experiment 'depth-with'. Did you mean depth-width",
        ),
        ("[[experiments]]\nname = 'reshaping'\nhour = 2", "wanted only the keys name, folder,"),
        (
            "[[experiments]]\nname = 'reshaping'\nhours = -2.0",
            "reshaping has -2 hours; wanted more",
        ),
        (
            "[[experiments]]\nname = 'reshaping'\nfolder = '../elsewhere'",
            "folder '../elsewhere' of reshaping is no plain name",
        ),
        (
            SHARED,
            "reshaping and tt-digits write with different options into the folder 'x'",
        ),
    ],
)
def test_a_bad_file_is_refused_in_one_line(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ExperimentError, match=message) as caught:
        read_campaign(write(tmp_path / "campaign.toml", text))
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ExperimentError, match=r"nowhere\.toml"):
        read_campaign(tmp_path / "nowhere.toml")


# Running.


@pytest.mark.slow
def test_rows_are_computed_once_and_what_is_left_is_said(tmp_path: Path) -> None:
    finished: list[str] = []
    campaign = Campaign((SHORT,), tmp_path)
    assert str(campaign.standings()[0]) == (
        "reshaping: 0 of 2 rows, 0.0 h of one core, at most 0.3 h left"
    )
    campaign.run(on_row=lambda name, _: finished.append(name))
    assert finished == [ROW, OTHER]
    campaign.run(on_row=lambda name, _: finished.append(name))
    assert finished == [ROW, OTHER]
    (standing,) = campaign.standings()
    assert (standing.finished, standing.left, standing.seconds_left) == (2, 0, 0.0)
    assert str(standing).endswith("nothing left")
    more = Campaign((Item("reshaping"),), tmp_path).standings()[0]
    assert more.left == 22
    assert more.seconds_left == pytest.approx(22 * standing.seconds / 2)
    assert len(read_outcome(tmp_path / "reshaping").rows) == 2  # results.json is there meanwhile
    assert torch.get_num_threads() >= 1


def test_a_row_is_expected_to_take_as_long_as_other_seeds_of_its_setting(tmp_path: Path) -> None:
    two = ("order-2", "order-3")
    campaign = Campaign((Item("tt-cp-rank", only=two, seeds=1),), tmp_path)
    campaign.run()
    rows = read_outcome(tmp_path / "tt-cp-rank").finished
    seconds = {row.setting: row.seconds for row in rows}
    (more,) = replace(campaign, items=(Item("tt-cp-rank", only=two, seeds=3),)).standings()
    assert more.seconds_left == pytest.approx(2 * sum(seconds.values()))
    item = Item("tt-cp-rank", only=("order-2", "order-4"), seeds=1)
    (other,) = replace(campaign, items=(item,)).standings()
    assert other.seconds_left == pytest.approx(seconds["order-2"])  # the mean of what is asked for


def test_no_row_is_begun_after_the_hours(tmp_path: Path) -> None:
    campaign = Campaign((Item("reshaping", only=(ROW, OTHER), hours=1e-9),), tmp_path)
    campaign.run()
    (standing,) = campaign.standings()
    assert (standing.finished, standing.left, standing.is_spent) == (1, 0, True)
    assert str(standing).endswith("nothing left, its hours are over")


def test_seeds_come_one_after_the_other(tmp_path: Path) -> None:
    finished: list[str] = []
    item = Item("tt-cp-rank", only=("order-2", "order-3"), seeds=2)
    Campaign((item,), tmp_path).run(on_row=lambda name, _: finished.append(name))
    assert finished == [f"order-{order}-seed{seed}" for seed in (0, 1) for order in (2, 3)]


@pytest.mark.slow
def test_an_experiment_that_fails_does_not_stop_the_next(tmp_path: Path) -> None:
    items = (Item("tt-mnist"), SHORT)
    with pytest.raises(ExperimentError, match=r"1 of 2 experiments failed\. tt-mnist: .*MNIST"):
        Campaign(items, tmp_path / "results", tmp_path / "no-data").run()
    assert len(read_outcome(tmp_path / "results" / "reshaping").rows) == 2


def test_a_folder_of_something_else_is_refused_before_anything_is_computed(tmp_path: Path) -> None:
    Campaign((Item("reshaping", only=(ROW,)),), tmp_path).run()
    (tmp_path / "reshaping").rename(tmp_path / "tt-digits")
    finished: list[str] = []
    with pytest.raises(ExperimentError, match="is the folder of reshaping, not of tt-digits"):
        Campaign((SHORT, Item("tt-digits")), tmp_path).run(
            on_row=lambda name, _: finished.append(name)
        )
    with pytest.raises(ExperimentError, match="begun with 600 seconds for each entry, not 60"):
        Campaign((Item("reshaping", "tt-digits", minutes=1.0),), tmp_path).run()
    assert finished == []


@pytest.mark.parametrize("is_packed", [False, True])
def test_rows_of_another_version_are_refused(*, is_packed: bool, tmp_path: Path) -> None:
    Campaign((Item("reshaping", only=(ROW,)),), tmp_path).run()
    folder = tmp_path / "reshaping"
    path = folder / "results.json" if is_packed else folder / "entries" / f"{ROW}.json"
    text = path.read_text()
    assert "share_of_rank" not in text
    path.write_text(text.replace("PlantedKernelEntry(", "PlantedKernelEntry(older=1, "))
    if is_packed:
        shutil.rmtree(folder / "entries")
        (folder / "experiment.json").unlink()
    message = rf"holds {ROW} of another version of the experiment: .*older=1.* where it is now "
    with pytest.raises(ExperimentError, match=message):
        Campaign((SHORT,), tmp_path).run()


def test_a_second_campaign_takes_the_rows_that_the_first_is_not_at(tmp_path: Path) -> None:
    finished: list[str] = []
    campaign = Campaign((SHORT,), tmp_path)
    with ResumableFolder(tmp_path / "reshaping" / "work" / ROW, {}, what="run"):
        campaign.run(on_row=lambda name, _: finished.append(name))
        assert finished == [OTHER]
    campaign.run(on_row=lambda name, _: finished.append(name))
    assert finished == [OTHER, ROW]


TWO_AT_ONCE = """
import os, sys
from pathlib import Path

import torch

from rankscope.lab.experiments.campaign import Campaign, Item
from rankscope.lab.experiments.catalogue import find_experiment

torch.set_num_threads(1)
os.nice = lambda increment: increment
folder = Path(sys.argv[1])
items = (Item("reshaping"),)
find_experiment("reshaping")
children = []
for number in range(2):
    child = os.fork()
    if child == 0:
        with (folder / f"log-{number}").open("a") as log:
            campaign = Campaign(items, folder)
            campaign.run(on_row=lambda name, _: print(name, file=log, flush=True))
        os._exit(0)
    children.append(child)
for child in children:
    assert os.waitpid(child, 0)[1] == 0
"""


@pytest.mark.slow
def test_two_campaigns_at_once_compute_every_row_once(tmp_path: Path) -> None:
    # Both begin with the file that git keeps, and unpack it at the same time.
    (tmp_path / "reshaping").mkdir()
    known = Path(__file__).parents[2] / "docs" / "results" / "reshaping" / "results.json"
    document = json.loads(known.read_text())
    for key in ("rows", "runs"):
        document[key] = document[key][:18]
    (tmp_path / "reshaping" / "results.json").write_text(json.dumps(document))
    command = [sys.executable, "-c", TWO_AT_ONCE, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr
    logs = [(tmp_path / f"log-{number}").read_text().split() for number in range(2)]
    names = [name for log in logs for name in log]
    assert len(names) == len(set(names)) == 6
    outcome = read_outcome(tmp_path / "reshaping")
    assert outcome.is_complete
    assert [row["entry"] for row in json.loads(known.read_text())["rows"]] == [
        row["entry"] for row in outcome.rows
    ]


def test_long_rows_need_checkpoints(tmp_path: Path) -> None:
    message = "random-.* keeps no checkpoints, so it may take 120 minutes at most, not 121"
    with pytest.raises(ExperimentError, match=message):
        Campaign((Item("reshaping", only=(ROW,), minutes=121.0),), tmp_path).standings()
    trained = Item("tt-digits", minutes=600.0)
    assert Campaign((trained,), tmp_path).standings()[0].left == 2 * 5 + 2  # two baselines


def test_a_full_disk_ends_the_campaign_with_what_is_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = iter([10**12, 5])
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=next(free)))
    with pytest.raises(OutputError, match="has 5 bytes left; a row is not begun with less than"):
        Campaign((SHORT,), tmp_path).run()
    assert [row["entry"] for row in read_outcome(tmp_path / "reshaping").rows] == [ROW]


@pytest.mark.slow
def test_a_disk_that_fills_up_while_a_row_is_written_loses_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Campaign((Item("reshaping", only=(ROW,)),), tmp_path).run()
    before = (tmp_path / "reshaping" / "results.json").read_bytes()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OutputError, match="No space left on device"):
            Campaign((SHORT,), tmp_path).run()
    assert (tmp_path / "reshaping" / "results.json").read_bytes() == before
    Campaign((SHORT,), tmp_path).run()
    assert len(read_outcome(tmp_path / "reshaping").rows) == 2


# From outside: the command, and SIGKILL.


def test_the_command_says_what_is_left_and_computes_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = f"[[experiments]]\nname = 'reshaping'\nonly = ['{ROW}']\n"
    # Named twice, once for some of its time: the row is still one.
    file = str(write(tmp_path / "campaign.toml", f"{text}hours = 0.1\n{text}"))
    output = ["-o", str(tmp_path / "results")]
    assert main(["experiment", "campaign", file, *output, "--show"]) == 0
    assert "1 row left, at most 0.2 h of one core" in capsys.readouterr().out
    assert not (tmp_path / "results").exists()
    assert main(["experiment", "campaign", file, *output]) == 0
    assert f"{ROW}; 0 rows left, about 0.0 h of one core" in capsys.readouterr().out
    write(tmp_path / "campaign.toml", text.replace("reshaping", "reshapings"))
    assert main(["experiment", "campaign", file, *output]) == 2
    message = capsys.readouterr().err.strip()
    assert "There is no experiment 'reshapings'" in message
    assert message.count("\n") == 0


# Forks a process for every moment, kills it there, and lets a last one finish; then computes the
# same in one piece. Checkpoints are frequent, so that even short lives get somewhere; the clock
# jumps by a year at every start.
KILLED = """
import os, random, signal, sys, time
from pathlib import Path

import torch

from rankscope.compression.training import loop
from rankscope.lab.experiments.campaign import Campaign, Item
from rankscope.lab.experiments.catalogue import find_experiment

torch.set_num_threads(1)
os.nice = lambda increment: increment  # beside other work the lowest priority would take hours
loop.CHECKPOINT_SECONDS = 0.1
items = (
    Item("depth-width", only=("depth-1-size-3000",), quick=True),
    Item("reshaping", only=("random-64-to-64-at-1.2",)),
)
for item in items:
    find_experiment(item.name)
true_time, start = time.time, random.Random(20)

def live(number, folder):
    time.time = lambda: true_time() + (-1) ** number * number * 3.15e7
    with (folder / "log").open("a") as log:
        campaign = Campaign(items, folder / "results")
        campaign.run(on_row=lambda name, _: print(name, file=log, flush=True))
    os._exit(0)

for folder, moments in ((Path(sys.argv[1]), 20), (Path(sys.argv[2]), 0)):
    for number in range(moments + 1):
        child = os.fork()
        if child == 0:
            live(number, folder)
        if number < moments:
            time.sleep(start.uniform(0.0, 0.6))
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
    assert status == 0, folder
"""


def rows_of(folder: Path) -> tuple[list[Row], list[str]]:
    rows = [
        {column: value for column, value in row.items() if column != "seconds"}
        for name in ("depth-width", "reshaping")
        for row in read_outcome(folder / "results" / name).rows
    ]
    return rows, (folder / "log").read_text().split()


@pytest.mark.slow
def test_sigkill_at_twenty_random_moments_changes_no_row(tmp_path: Path) -> None:
    folders = [tmp_path / "killed", tmp_path / "whole"]
    for folder in folders:
        folder.mkdir()
    command = [sys.executable, "-c", KILLED, *map(str, folders)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr
    (killed, log), (whole, names) = map(rows_of, folders)
    assert killed == whole
    assert len(whole) == len(names) == 3
    # A row may be written and its process killed before it says so, but never computed twice.
    assert len(set(log)) == len(log)
    assert set(log) <= set(names)
