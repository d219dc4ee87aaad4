import pytest
import torch
from torch import Tensor, nn

from rankscope.errors import ExperimentError
from rankscope.lab.experiments import CertifiedTask, ImageTask, TargetSearch, Task, WaveTask
from rankscope.progress import Progress
from rankscope.rank import Uniform, quadrature_kernel
from rankscope.seeds import seed_of

# Targets: their rank, the error that the lower degree cannot avoid, and refusals.


SEARCH = TargetSearch((3,), 5, num_inputs=4, lower_degree=2, steps=10)


def test_a_target_is_proved_to_be_out_of_reach_of_the_lower_degree() -> None:
    steps: list[Progress] = []
    target = SEARCH.find(steps.append)
    assert [step.done for step in steps] == list(range(1, 11))
    # The bounds of degrees 3 and 2 in two inputs on each side.
    assert (target.rank, target.lower_rank) == (6, 4)
    kernel = quadrature_kernel(target, SEARCH.partition, measure=Uniform(), num_nodes=4)
    values = torch.linalg.svdvals(torch.from_numpy(kernel))
    torch.testing.assert_close(values.square().sum(), torch.ones((), dtype=torch.float64))
    least = values[4:].square().sum().sqrt()
    torch.testing.assert_close(torch.tensor(target.least_error, dtype=torch.float64), least)


def test_no_quadratic_polynomial_comes_nearer_than_the_least_error() -> None:
    """The best one, by least squares on a rule that is exact for both."""
    target = SEARCH.find()
    nodes, weights = (torch.from_numpy(array) for array in Uniform().rule(4))
    points = torch.cartesian_prod(*[nodes] * 4)
    roots = torch.cartesian_prod(*[weights] * 4).prod(dim=1).sqrt()
    ones = torch.cat([torch.ones(len(points), 1, dtype=torch.float64), points], dim=1)
    squares = torch.stack([ones[:, i] * ones[:, j] for i in range(5) for j in range(i + 1)], dim=1)
    wanted = roots * target(points)
    basis = torch.linalg.qr(roots[:, None] * squares)[0]
    missed = wanted - basis @ (basis.T @ wanted)
    assert float(missed.norm()) >= target.least_error


def test_searching_makes_the_target_harder() -> None:
    longer = TargetSearch((3,), 5, num_inputs=4, lower_degree=2, steps=40)
    assert longer.find().least_error > SEARCH.find().least_error


def test_the_same_search_finds_the_same_target() -> None:
    first, again = SEARCH.find().network, SEARCH.find().network
    for one, other in zip(first.parameters(), again.parameters(), strict=True):
        assert torch.equal(one, other)
    assert seed_of("target", 0) != seed_of("target", 1)


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ExperimentError, match="even number of inputs, got 5"):
        TargetSearch((3,), 5, num_inputs=5, lower_degree=2)
    with pytest.raises(ExperimentError, match=r"rank above 6, proved 6.* seed than 0"):
        TargetSearch((3,), 5, num_inputs=4, lower_degree=3, steps=0).find()


# Tasks: their data follow from their fields, and errors are what they say.


CERTIFIED = CertifiedTask(
    TargetSearch((3,), 4, num_inputs=4, lower_degree=2, steps=2), num_samples=16
)
TASKS = [CERTIFIED, WaveTask(num_samples=16), ImageTask("digits", 8, 2, num_samples=16)]


class Constant(nn.Module):
    """The same output for all inputs."""

    def __init__(self, outputs: Tensor) -> None:
        super().__init__()
        self.outputs = outputs

    def forward(self, inputs: Tensor) -> Tensor:
        return self.outputs.expand(len(inputs), -1)


@pytest.mark.parametrize("task", TASKS)
def test_task_data_have_the_sizes_that_its_task_says(task: Task) -> None:
    task_data = task.task_data(None, seed=0)
    assert task_data.train.inputs.shape == (16, task.num_inputs)
    assert task_data.test.inputs.shape[1:] == (task.num_inputs,)
    assert task_data.num_outputs == task.num_outputs
    model = Constant(torch.zeros(task.num_outputs))
    assert float(task_data.loss(model, task_data.train.batches(16)[0])) > 0


def test_functions_draw_other_samples_for_other_seeds_and_test_on_the_same() -> None:
    task = WaveTask(num_samples=16)
    first, again, other = (task.task_data(None, seed=seed) for seed in (0, 0, 1))
    assert torch.equal(first.train.inputs, again.train.inputs)
    assert not torch.equal(first.train.inputs, other.train.inputs)
    assert torch.equal(first.test.inputs, other.test.inputs)


def test_the_error_of_a_function_is_relative_to_its_spread() -> None:
    task_data = WaveTask(num_samples=16).task_data(None, seed=0)
    assert task_data.test.targets is not None
    mean = task_data.test.targets.mean()
    # The spread divides by one less than the count of 4096.
    assert task_data.error(Constant(mean[None])) == pytest.approx(1.0, rel=1e-3)


def test_the_error_of_a_classifier_is_the_percentage_of_wrong_answers() -> None:
    task_data = ImageTask("digits", 8, 2, num_samples=16).task_data(None, seed=0)
    assert task_data.test.targets is not None
    always_three = Constant(nn.functional.one_hot(torch.tensor(3), 10).float())
    share = float((task_data.test.targets != 3).double().mean())
    assert task_data.error(always_three) == 100 * share


def test_images_are_averaged_over_squares_and_standardized() -> None:
    from rankscope.networks import load_data_set

    task_data = ImageTask("digits", 8, 4, num_samples=100).task_data(None, seed=0)
    images = load_data_set("digits").train.head(100).inputs
    means = images[:, 0].reshape(100, 2, 4, 2, 4).mean(dim=(2, 4)).flatten(1)
    wanted = (means - means.mean(dim=0)) / means.std()
    torch.testing.assert_close(task_data.train.inputs, wanted)


def test_a_certified_task_tells_what_is_proved_of_it() -> None:
    facts = CERTIFIED.task_data(None, seed=0).facts
    assert facts["rank of the target"] == 6
    assert facts["rank of the lower degree"] == 4


def test_too_many_samples_are_refused() -> None:
    with pytest.raises(ExperimentError, match="digits has 1,437 training images, but 2,000 are w"):
        ImageTask("digits", 8, 2, num_samples=2000).task_data(None, seed=0)
