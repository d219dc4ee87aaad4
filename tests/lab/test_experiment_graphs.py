"""The experiments on graphs and on the order of features: their tasks, networks and pairs."""

import numpy
import pytest
import torch

from rankscope.lab.experiments import (
    FeatureOrder,
    GraphName,
    OrderEntry,
    SparsifiedEntry,
    TableName,
)
from rankscope.lab.experiments.feature_order import FEATURE_ORDER, as_patches, in_a_row, split_table
from rankscope.lab.experiments.graph_sparsification import (
    GRAPH_SPARSIFICATION,
    normalized_adjacency,
    vertex_task,
)
from rankscope.rank import Graph


@pytest.mark.parametrize("name", list(GraphName))
def test_a_seed_fixes_graph_and_known_vertices(name: GraphName) -> None:
    first, again, other = (vertex_task(name, seed) for seed in (0, 0, 1))
    assert first.graph == again.graph
    assert torch.equal(first.is_known, again.is_known)
    assert not torch.equal(first.is_known, other.is_known)
    known = first.labels[first.is_known].bincount()
    assert known.min() == known.max() >= 3


def test_the_adjacency_is_divided_by_the_roots_of_the_degrees() -> None:
    matrix = normalized_adjacency(Graph(3, ((0, 1),)))
    expected = torch.tensor([[0.5, 0.5, 0], [0.5, 0.5, 0], [0, 0, 1.0]])
    torch.testing.assert_close(matrix, expected)


def test_patches_hold_four_features_after_the_other() -> None:
    features = numpy.arange(2 * 16.0).reshape(2, 16)
    images = as_patches(features)
    assert images.shape == (2, 1, 2, 8)
    assert images[0, 0, :, 2:4].flatten().tolist() == [4, 5, 6, 7]
    assert in_a_row(images)[:, 0].tolist() == features.tolist()
    assert as_patches(numpy.ones((1, 30))).sum() == 30


@pytest.mark.parametrize("name", [TableName.CANCER, TableName.DIGITS])
def test_orders_only_move_features(name: TableName) -> None:
    given, shuffled, reordered = (split_table(name, order, 0) for order in FeatureOrder)
    for other in (shuffled, reordered):
        assert given.test.labels is not None
        assert other.test.labels is not None
        assert numpy.array_equal(given.test.labels, other.test.labels)
        for before, after in zip(given.train.features, other.train.features, strict=True):
            assert numpy.array_equal(numpy.sort(before), numpy.sort(after))
        assert not numpy.array_equal(given.train.features, other.train.features)


@pytest.mark.parametrize(
    ("experiment", "entry"), [(GRAPH_SPARSIFICATION, SparsifiedEntry), (FEATURE_ORDER, OrderEntry)]
)
def test_every_pair_names_entries_and_a_baseline(experiment, entry) -> None:  # type: ignore[no-untyped-def]
    names = {one.name: one for one in experiment.entries}
    assert experiment.claims is not None
    for pair in experiment.claims.pairs:
        assert isinstance(names[pair.first], entry)
        assert isinstance(names[pair.second], entry)
        assert pair.score.baseline in names
