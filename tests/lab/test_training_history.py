import math
import time
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from rankscope.compression import (
    EarlyStop,
    Recipe,
    Record,
    StopAt,
    cross_entropy,
    fit,
    working_seconds,
)
from rankscope.compression.training.recipe import from_plain, to_plain
from rankscope.errors import TrainingError
from rankscope.networks import TensorData
from rankscope.progress import Progress

# Clock.


def test_waiting_is_no_work() -> None:
    before = working_seconds()
    time.sleep(0.2)
    waited = working_seconds() - before
    assert 0 <= waited < 0.1


def test_processor_time_is_shared_by_the_threads() -> None:
    threads = torch.get_num_threads()
    assert working_seconds() * threads <= time.process_time()


# Records as lines and as plain data.


def test_a_record_survives_json_with_what_is_not_finite_as_nan() -> None:
    record = Record(1, 10, 0.5, 1e-3, 2.0, {"accuracy": 0.25})
    assert from_plain(to_plain(record)) == record
    undefined = to_plain(Record(1, 10, 0.5, 1e-3, 2.0, {"ratio": math.inf}))
    assert undefined["metrics"] == {"ratio": None}
    assert math.isnan(from_plain(undefined).metrics["ratio"])


# Runs that end when a score no longer improves.


def records(scores: list[float]) -> list[Record]:
    return [Record(epoch, 0, 0.0, 0.0, 0.0, {"s": s}) for epoch, s in enumerate(scores, 1)]


@settings(deadline=None)
@given(scores=st.lists(st.sampled_from([0.0, 1.0, 2.0, float("nan")])), patience=st.integers(1, 4))
def test_a_run_ends_when_the_last_epochs_are_no_better(scores: list[float], patience: int) -> None:
    stop = EarlyStop("s", patience)
    best = max((score for score in scores if score == score), default=None)
    expected = None if best is None else scores.index(best) + 1
    assert stop.best_epoch(records(scores)) == expected
    earlier = [score for score in scores[:-patience] if score == score]
    recent = [score for score in scores[-patience:] if score == score]
    no_better = max(recent, default=-1.0) <= max(earlier, default=-1.0)
    assert stop.is_due(records(scores)) == (len(scores) >= patience and no_better)
    losses = [-score for score in scores]
    assert EarlyStop("s", patience, larger_is_better=False).best_epoch(records(losses)) == expected


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Linear(3, 2)


def data() -> TensorData:
    generator = torch.Generator().manual_seed(1)
    return TensorData(torch.randn(12, 3, generator=generator), torch.arange(12) % 2)


def recipe(epochs: int = 9) -> Recipe:
    stop = EarlyStop("score", patience=3)
    return Recipe(epochs=epochs, batch_size=5, learning_rate=0.1, early_stop=stop)


class Scores:
    """Gives planned scores, and notes the weights that they were given for."""

    def __init__(self, planned: list[float]) -> None:
        self.planned = planned
        self.seen: list[torch.Tensor] = []

    def __call__(self, model: nn.Module) -> dict[str, float]:
        assert isinstance(model, nn.Linear)
        self.seen.append(model.weight.detach().clone())
        return {"score": self.planned[len(self.seen) - 1]}


def test_the_model_gets_the_weights_of_its_best_epoch() -> None:
    model, scores = network(), Scores([1.0, 3.0, 2.0, 3.0, 0.0, 9.0])
    history = fit(model, cross_entropy, data(), recipe(), evaluate=scores)
    assert (len(history.records), history.best_epoch, history.is_complete) == (5, 2, True)
    assert torch.equal(dict(model.named_parameters())["weight"], scores.seen[1])
    # Ended by its epochs, it has the best weights too.
    model, scores = network(), Scores([1.0, 3.0, 2.0])
    history = fit(model, cross_entropy, data(), recipe(3), evaluate=scores)
    assert (len(history.records), history.best_epoch) == (3, 2)
    assert torch.equal(dict(model.named_parameters())["weight"], scores.seen[1])


class Interruption(Exception):
    pass


@pytest.mark.parametrize("epoch", [2, 3, 4, 5])
def test_an_interrupted_run_still_knows_its_best_weights(tmp_path: Path, epoch: int) -> None:
    def interrupt(progress: Progress) -> None:
        if progress.what.startswith(f"epoch {epoch} "):
            raise Interruption

    planned = [1.0, 3.0, 2.0, 3.0, 0.0]
    whole, first = network(), network()
    fit(whole, cross_entropy, data(), recipe(), evaluate=Scores(planned))
    with pytest.raises(Interruption):
        fit(
            first,
            cross_entropy,
            data(),
            recipe(),
            folder=tmp_path,
            evaluate=Scores(planned),
            progress=interrupt,
        )
    rest = Scores(planned[epoch - 1 :])
    for _ in range(2):  # a finished run gives its best weights again
        model = nn.Linear(3, 2)
        history = fit(model, cross_entropy, data(), recipe(), folder=tmp_path, evaluate=rest)
        assert torch.equal(model.weight, dict(whole.named_parameters())["weight"])
        assert (history.best_epoch, len(history.records)) == (2, 5)


def test_a_score_that_is_not_given_is_refused() -> None:
    with pytest.raises(TrainingError, match="must give 'score' after every epoch, got loss"):
        fit(network(), cross_entropy, data(), recipe(), evaluate=lambda model: {"loss": 1.0})
    with pytest.raises(TrainingError, match="must give 'score' after every epoch, got nothing"):
        fit(network(), cross_entropy, data(), recipe())
    with pytest.raises(TrainingError, match="patience must be at least 1, got 0"):
        EarlyStop("score", 0)


@settings(deadline=None)
@given(scores=st.lists(st.sampled_from([0.0, 1.0, 2.0, float("nan")])))
def test_a_run_stops_at_a_value_once_the_last_epoch_reached_it(scores: list[float]) -> None:
    assert StopAt("s", 1.0).is_due(records(scores)) == (scores[-1:] in ([1.0], [2.0]))
    assert not StopAt("other", 1.0).is_due(records(scores))
    assert StopAt("s", 1.0).best_epoch(records(scores)) == (len(scores) or None)


def test_a_run_that_is_good_enough_keeps_its_last_weights(tmp_path: Path) -> None:
    model, scores = network(), Scores([3.0, 1.0, 5.0, 9.0])
    plan = Recipe(epochs=9, batch_size=5, learning_rate=0.1, early_stop=StopAt("score", 4.0))
    history = fit(model, cross_entropy, data(), plan, folder=tmp_path, evaluate=scores)
    assert (len(history.records), history.is_complete) == (3, True)
    torch.testing.assert_close(next(model.parameters()), scores.seen[2], rtol=0, atol=0)
    again = network()
    fit(again, cross_entropy, data(), plan, folder=tmp_path, evaluate=scores)
    torch.testing.assert_close(next(again.parameters()), scores.seen[2], rtol=0, atol=0)
