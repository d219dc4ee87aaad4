"""From a document such as config.json to sizes, exact counts and the tensors they imply."""

from collections.abc import Mapping
from dataclasses import replace

from rankscope.auditing.configuration import Configuration
from rankscope.auditing.families.catalogue import find_family
from rankscope.auditing.families.fields import Fields
from rankscope.auditing.families.tensor_list import (
    ExpectedTensor,
    count_beyond_width,
    count_parameters,
)
from rankscope.errors import ConfigurationError

# The largest models known have about 20,000.
_MAX_HEADS_AND_EXPERTS = 1_000_000


def read_configuration(
    document: Mapping[str, object], *, family: str | None = None, who: str
) -> Configuration:
    """The sizes of a transformer and its exact numbers of parameters.

    Args:
        document: the content of a config.json or the like.
        family: which family it is of, where `model_type` does not say so.
        who: what messages call the document.

    Example:
        >>> sizes = {"n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 1024}
        >>> gpt2 = read_configuration({**sizes, "vocab_size": 50257}, who="gpt2")
        >>> gpt2.family, gpt2.depth, gpt2.parameters.total
        ('gpt2', 12, 124439808)

    Raises:
        ConfigurationError: if the family is unknown, or keys are missing, wrong or contradictory.
    """
    return _read(document, family=family, who=who)[0]


def expected_tensors(
    document: Mapping[str, object], family: str | None = None, *, who: str = "configuration"
) -> tuple[ExpectedTensor, ...]:
    """The tensors that a model of this configuration holds, under its family's own names.

    Example:
        >>> sizes = {"n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 1024}
        >>> first, *_ = expected_tensors({**sizes, "vocab_size": 50257})
        >>> first.name, first.shape
        ('transformer.wte.weight', (50257, 768))

    Raises:
        ConfigurationError: as `read_configuration`.
    """
    return _read(document, family=family, who=who)[1]


def _read(
    document: Mapping[str, object], *, family: str | None, who: str
) -> tuple[Configuration, tuple[ExpectedTensor, ...]]:
    found = find_family(document, family=family, who=who)
    fields = Fields(document, found.aliases, found.name, who)
    fields.require(found.required)
    sizes, generated = found.read(fields)
    # Before anything is listed: the longest lists run over the experts or heads of all blocks.
    if sizes.depth * max(sizes.heads, sizes.num_experts) > _MAX_HEADS_AND_EXPERTS:
        raise ConfigurationError(
            f"{who}: {sizes.depth:,} blocks with {sizes.heads:,} heads and {sizes.num_experts:,} "
            f"experts each; wanted at most {_MAX_HEADS_AND_EXPERTS:,} of each in all blocks."
        )
    tensors = tuple(generated)
    beyond = count_beyond_width(tensors, attention_width=sizes.attention_width, width=sizes.width)
    configuration = replace(
        sizes, parameters=count_parameters(tensors), attention_beyond_width=beyond
    )
    return configuration, tensors
