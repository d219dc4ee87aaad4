"""All families, and which one a document is of."""

import re
from collections.abc import Mapping
from dataclasses import replace

from rankscope.auditing.configuration import Configuration
from rankscope.auditing.families.decoders import DECODER_FAMILIES
from rankscope.auditing.families.encoders import ENCODER_FAMILIES
from rankscope.auditing.families.tensor_list import (
    SIZES,
    ExpectedTensor,
    Family,
    Fields,
    count_beyond_width,
    count_parameters,
)
from rankscope.errors import ConfigurationError, UnknownFamilyError

FAMILIES: Mapping[str, Family] = {
    family.name: family for family in (*DECODER_FAMILIES, *ENCODER_FAMILIES)
}
_BY_MODEL_TYPE = {
    model_type: family
    for family in FAMILIES.values()
    for model_type in (family.name, *family.model_types)
}
# Keys under which several models, or one at a deeper level, are described.
_NESTED = {
    "text_config": "it joins several models, each under a key of its own",
    "vision_config": "it joins several models, each under a key of its own",
    "img_processor": "it joins a language model with an image model of unknown sizes",
    "init_args": "its sizes stand one level deeper",
}
_SHOWN = 60  # characters of a stranger's word, at most


def find_family(document: Mapping[str, object], *, family: str | None, who: str) -> Family:
    """The family named by `model_type`, else by `architectures` or the keys, else by `family`.

    `family` decides where nothing but the keys speaks (DistilBERT and RoBERTa can have the keys of
    BERT) or where `model_type` is unknown; it may not contradict a known `model_type`.

    Raises:
        ConfigurationError: if none fits, or two contradict each other.
    """
    _refuse_nested(document, who)
    wanted = None if family is None else _family_named(family, who)
    stated = _stated_family(document)
    if wanted and stated and wanted != stated:
        raise ConfigurationError(
            f"{who}: its model_type is that of family {stated.name!r}, but {wanted.name!r} was "
            "asked for. Leave the family out, or correct the model_type."
        )
    chosen = wanted or stated
    if chosen is None and document.get("model_type") is None:
        chosen = _by_keys(document)
    if chosen is None:
        raise _unknown_family_error(document, who)
    return chosen


def _refuse_nested(document: Mapping[str, object], who: str) -> None:
    for key, reason in _NESTED.items():
        if document.get(key) is not None:
            name = ascii(document.get("model_type", document.get("init_class")))[:_SHOWN]
            raise UnknownFamilyError(
                f"{who}: a model of type {name} with the key {key} is not read: {reason}. "
                "Give the part with hidden_size and num_hidden_layers as a file of its own."
            )


def _family_named(family: str, who: str) -> Family:
    if family not in _BY_MODEL_TYPE:
        raise ConfigurationError(
            f"{who}: the family {ascii(family)[:_SHOWN]} is not known; "
            f"known are {', '.join(sorted(FAMILIES))}."
        )
    return _BY_MODEL_TYPE[family]


def _stated_family(document: Mapping[str, object]) -> Family | None:
    """What `model_type` says, or the first of `architectures` if there is none."""
    model_type = document.get("model_type")
    if isinstance(model_type, str):
        return _BY_MODEL_TYPE.get(model_type)
    architectures = document.get("architectures")
    if model_type is not None or not isinstance(architectures, list) or not architectures:
        return None
    # Such as Qwen2MoeForCausalLM, of model_type qwen2_moe.
    first = re.sub(r"(For[A-Z]\w*|LMHeadModel|EncoderModel|Model)$", "", str(architectures[0]))
    plain = {re.sub("[-_]", "", name): family for name, family in _BY_MODEL_TYPE.items()}
    return plain.get(first.lower())


def _by_keys(document: Mapping[str, object]) -> Family | None:
    """The family with the most telling keys among those whose keys are all there."""
    fitting = [
        family
        for family in FAMILIES.values()
        if family.telling_keys and all(key in document for key in family.telling_keys)
    ]
    return max(fitting, key=lambda family: len(family.telling_keys), default=None)


def _unknown_family_error(document: Mapping[str, object], who: str) -> UnknownFamilyError:
    model_type = document.get("model_type")
    if model_type is None:
        reason = "it has no model_type, and its keys fit no family or several"
    else:
        reason = f"its model_type {ascii(model_type)[:_SHOWN]} is not known"
    missing = [key for key in SIZES if document.get(key) is None]
    lack = f" It lacks {', '.join(missing)}, which most families have." if missing else ""
    return UnknownFamilyError(
        f"{who}: of no family that can be read: {reason}.{lack} "
        f"If its tensors are those of a known family, name it: {', '.join(sorted(FAMILIES))}."
    )


# --- From a document such as config.json to sizes, exact counts and the tensors they imply --------


# The largest models known have about 25,000.
_MAX_HEADS_AND_EXPERTS = 200_000
_FEWEST = 8  # tensors of a block, whatever it holds


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
    chosen = find_family(document, family=family, who=who)
    fields = Fields(document, chosen.aliases, chosen.name, who)
    fields.require(chosen.required)
    sizes, generated = chosen.read(fields)
    # Before anything is listed: the longest lists run over the experts or heads of all blocks.
    if sizes.depth * max(sizes.heads, sizes.num_experts, _FEWEST) > _MAX_HEADS_AND_EXPERTS:
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
