"""The tensor-train classifier."""

import pytest
import torch

from rankscope.errors import SizeError
from rankscope.networks import PatchFeatures, TrainClassifier
from rankscope.rank import Partition


@pytest.mark.parametrize(("has_equal_cores", "num_inner"), [(False, 14), (True, 1)])
def test_only_inner_cores_are_shared(has_equal_cores: bool, num_inner: int) -> None:
    features = PatchFeatures(image=(1, 8, 8), patch=2, num_features=3)
    classifier = TrainClassifier(features, bond=4, num_classes=5, has_equal_cores=has_equal_cores)
    shapes = [tuple(part.shape) for part in (classifier.first, classifier.inner, classifier.last)]
    assert shapes == [(3, 4), (num_inner, 4, 3, 4), (4, 3, 5)]


@pytest.mark.parametrize("has_equal_cores", [False, True])
def test_bounds_of_the_published_theorems_are_reachable(has_equal_cores: bool) -> None:
    features = PatchFeatures(image=(1, 8, 8), patch=2, num_features=3)
    classifier = TrainClassifier(features, bond=4, num_classes=5, has_equal_cores=has_equal_cores)
    partition = Partition.interleaved(16)
    network = classifier.score_network(0)
    lower, upper = network.lower_bound(partition), network.upper_bound(partition)
    assert lower is not None
    assert lower.value == upper.value == 3**8


def test_a_state_of_size_zero_is_refused() -> None:
    features = PatchFeatures(image=(1, 8, 8), patch=2, num_features=3)
    with pytest.raises(SizeError, match="bond must be at least 1, got 0"):
        TrainClassifier(features, bond=0, num_classes=5)


def test_a_train_learns_to_tell_where_a_pixel_is(generator: torch.Generator) -> None:
    features = PatchFeatures(image=(1, 2, 8), patch=2, num_features=4, generator=generator)
    classifier = TrainClassifier(features, bond=4, num_classes=4, generator=generator)
    labels = torch.arange(4)
    images = torch.zeros(4, 1, 2, 8)
    images[labels, 0, 0, 2 * labels] = 1.0
    optimizer = torch.optim.Adam(classifier.parameters(), lr=1e-2)
    for _ in range(150):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(classifier(images), labels).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    assert (classifier(images).argmax(dim=1) == labels).all()
