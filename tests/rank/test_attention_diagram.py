"""The attention diagram names the network's parameters; test_attention runs it."""

import pytest

from rankscope.diagrams import Role, input_arrays, nodes_of
from rankscope.rank import SelfAttention


@pytest.mark.parametrize("network", [
    SelfAttention(depth=3, width=4, heads=2),
    SelfAttention(depth=2, width=4, embedding_rank=2, has_positions=True),
    SelfAttention(depth=2, width=2, degree=7),
])  # fmt: skip
def test_every_parameter_is_drawn_and_the_input_is_x(network: SelfAttention) -> None:
    drawn = network.diagram()
    parameters = {node.source for node in nodes_of(drawn) if node.role is Role.PARAMETER}
    assert parameters == {name for name, _ in network.named_parameters()}
    assert input_arrays(drawn) == ("x",)


def test_there_is_a_step_for_each_layer_and_one_for_the_tokens_if_they_are_made() -> None:
    plain = SelfAttention(depth=2, width=2).diagram()
    assert [step.name for step in plain.steps] == ["layer1", "layer2"]
    shifted = SelfAttention(depth=1, width=2, has_positions=True).diagram()
    assert [step.name for step in shifted.steps] == ["tokens", "layer1"]
