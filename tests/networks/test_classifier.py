"""What holds of all tensor-network classifiers."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import nn

from rankscope.diagrams import to_module
from rankscope.errors import SizeError
from rankscope.networks import (
    HierarchicalClassifier,
    PatchFeatures,
    ShallowClassifier,
    TensorNetworkClassifier,
    TrainClassifier,
    product_of_pairs,
)
from rankscope.networks.classifiers import LARGEST_LOG_SCALE, Scores, rescale
from rankscope.rank import Partition, measure_rank, separation_rank

Build = Callable[[PatchFeatures, torch.Generator], TensorNetworkClassifier]
KINDS: dict[str, Build] = {
    "train": lambda features, generator: TrainClassifier(
        features, bond=3, num_classes=3, generator=generator
    ),
    "equal cores": lambda features, generator: TrainClassifier(
        features, bond=3, num_classes=3, has_equal_cores=True, generator=generator
    ),
    "shallow": lambda features, generator: ShallowClassifier(
        features, channels=4, num_classes=3, generator=generator
    ),
    "hierarchical": lambda features, generator: HierarchicalClassifier(
        features, channels=3, num_classes=3, generator=generator
    ),
    "shared": lambda features, generator: HierarchicalClassifier(
        features, channels=3, num_classes=3, is_shared=True, generator=generator
    ),
}
every_kind = pytest.mark.parametrize("kind", KINDS)


def built(kind: str, width: int = 10, *, is_affine: bool = False) -> TensorNetworkClassifier:
    generator = torch.Generator().manual_seed(0)
    features = PatchFeatures(
        image=(1, 2, width),
        patch=2,
        num_features=3,
        activation=nn.Identity() if is_affine else None,
        is_normalized=not is_affine,
        generator=generator,
    )
    classifier = KINDS[kind](features, generator).double()
    with torch.no_grad():
        for parameter in classifier.parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.add_(noise / 2)
    return classifier


def images(count: int = 6, width: int = 10) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(count, 1, 2, width, generator=generator, dtype=torch.float64)


@every_kind
@pytest.mark.parametrize("width", [6, 8, 10])
def test_scores_are_the_exact_networks_of_the_same_weights(kind: str, width: int) -> None:
    classifier = built(kind, width)
    features = classifier.features(images(width=width)).transpose(0, 1)
    exact = [classifier.score_network(label)(features) for label in range(3)]
    torch.testing.assert_close(classifier(images(width=width)), torch.stack(exact, dim=1))


@every_kind
def test_the_diagram_computes_all_scores(kind: str) -> None:
    classifier = built(kind)
    module = to_module(classifier.diagram(), dict(classifier.named_parameters()))
    counted = sum(parameter.numel() for parameter in module.parameters())
    outside = sum(parameter.numel() for parameter in classifier.features.parameters())
    assert counted + outside == sum(parameter.numel() for parameter in classifier.parameters())
    features = classifier.features(images()).transpose(0, 1)
    found = torch.stack([module(sample) for sample in features])
    torch.testing.assert_close(found, classifier(images()))


@every_kind
def test_gradients_are_those_of_the_exact_network(kind: str) -> None:
    classifier = built(kind, width=6)
    inputs = images(2, width=6).requires_grad_()
    assert torch.autograd.gradcheck(classifier, (inputs,))
    (found,) = torch.autograd.grad(classifier(inputs)[:, 1].sum(), inputs)
    exact = classifier.score_network(1)
    values = exact(classifier.features(inputs).transpose(0, 1))
    torch.testing.assert_close(found, torch.autograd.grad(values.sum(), inputs)[0])


@every_kind
def test_the_separation_rank_of_affine_features_is_that_of_the_coefficients(kind: str) -> None:
    classifier = built(kind, width=8, is_affine=True)
    partition = Partition.interleaved(4)
    network = classifier.score_network(2)
    exact = measure_rank(network, partition, weights=dict(network.named_parameters()))
    upper = network.upper_bound(partition)
    assert upper is not None
    assert upper.holds_for(exact.lower)

    def score(patches: torch.Tensor) -> torch.Tensor:
        pixels = patches.reshape(-1, 4, 2, 2).permute(0, 2, 1, 3).reshape(-1, 1, 2, 8)
        values: torch.Tensor = classifier(pixels)[:, 2]
        return values

    generator = torch.Generator().manual_seed(2)
    samples = torch.randn(24, 4, 4, generator=generator, dtype=torch.float64)
    found = separation_rank(score, partition, inputs=samples)
    assert found.numeric.value == exact.lower


@every_kind
def test_logits_of_a_long_classifier_stay_finite_whatever_its_weights(kind: str) -> None:
    for factor in (1e-9, 1e9):
        classifier = built(kind, width=128).float()
        with torch.no_grad():
            for name, parameter in classifier.named_parameters():
                parameter.mul_(1.0 if name.startswith("features") else factor)
        inputs = images(width=128).float()
        scores = classifier.scores(inputs)
        assert scores.values.isfinite().all()
        assert (scores.values.abs().amax(dim=1) > 0).all()
        # About 64 factors, each of them this large.
        assert scores.log_scale.abs().min() > 40 * abs(math.log(factor))
        loss = nn.functional.cross_entropy(classifier(inputs), torch.zeros(6, dtype=torch.long))
        loss.backward()  # type: ignore[no-untyped-call]
        assert loss.isfinite()


@every_kind
def test_fresh_scores_are_of_order_one_however_long_the_image(kind: str) -> None:
    generator = torch.Generator().manual_seed(0)
    features = PatchFeatures(image=(1, 2, 128), patch=2, num_features=8, generator=generator)
    logits = KINDS[kind](features, generator)(images(width=128).float())
    assert 1e-4 < float(logits.detach().abs().max()) < 1e2


@every_kind
@pytest.mark.parametrize("label", [-1, 3])
def test_a_class_that_there_is_not_is_refused(kind: str, label: int) -> None:
    with pytest.raises(SizeError, match=f"has the classes 0..2, got {label}"):
        built(kind).score_network(label)


@pytest.mark.parametrize(("kind", "least"), [("train", 3), ("shallow", 2), ("hierarchical", 2)])
def test_too_few_patches_are_refused(kind: str, least: int) -> None:
    generator = torch.Generator().manual_seed(0)
    features = PatchFeatures(image=(1, 2, 2), patch=2, num_features=3)
    with pytest.raises(SizeError, match=f"num_patches must be at least {least}, got 1"):
        KINDS[kind](features, generator)


def test_a_scale_beyond_the_range_counts_as_the_largest() -> None:
    scores = Scores(torch.tensor([[1.0, -1.0]]), torch.tensor([1e4]))
    torch.testing.assert_close(
        scores.logits(), torch.tensor([[1.0, -1.0]]) * math.exp(LARGEST_LOG_SCALE)
    )


def test_rescaled_values_have_size_one_and_vectors_of_zeros_stay() -> None:
    values, log_size = rescale(torch.tensor([[2.0, -4.0], [0.0, 0.0]]))
    torch.testing.assert_close(values, torch.tensor([[0.5, -1.0], [0.0, 0.0]]))
    torch.testing.assert_close(log_size, torch.tensor([math.log(4), 0.0]))


def test_products_of_pairs_leave_an_odd_one_as_it_is() -> None:
    nodes = torch.tensor([[2.0], [3.0], [5.0]])
    torch.testing.assert_close(product_of_pairs(nodes), torch.tensor([[6.0], [5.0]]))
    torch.testing.assert_close(product_of_pairs(nodes[:2]), torch.tensor([[6.0]]))
