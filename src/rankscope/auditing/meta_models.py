"""Configurations that no family here reads: transformers builds the model, without numbers.

The class that `architectures` names (or else the language model of the type) is made on the meta
device, so that every parameter has a name and a shape and none takes memory. Needs the extra `hf`.
"""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rankscope.auditing.configuration import Configuration, Parameters
from rankscope.auditing.families.tensor_list import ExpectedTensor, Part, count_parameters
from rankscope.auditing.tensors import part_of
from rankscope.errors import ConfigurationError
from rankscope.extras import transformers

_MAX_BLOCKS = 10_000  # the deepest models known have some hundreds


@dataclass(frozen=True)
class BuiltModel:
    """What is known of a model that was built without numbers.

    Args:
        sizes: of a transformer with attention heads; None if it has none that can be named.
        tensors: every parameter, those that repeat another one marked as tied.
    """

    sizes: Configuration | None
    tensors: tuple[ExpectedTensor, ...]

    @property
    def parameters(self) -> Parameters:
        """Exact numbers by part."""
        return count_parameters(self.tensors)


def build(document: Mapping[str, object], *, who: str) -> BuiltModel:
    """Build the model of a configuration on the meta device.

    Args:
        document: the content of a config.json with a `model_type`.
        who: what messages call it.

    Raises:
        ConfigurationError: if transformers does not know the type, or cannot build it, with its
            reason.
        MissingExtraError: if the extra `hf` is not installed.
    """
    package: Any = transformers()
    model_type = document.get("model_type")
    if model_type not in package.CONFIG_MAPPING:
        raise ConfigurationError(
            f"{who}: transformers {package.__version__} has no model_type "
            f"{ascii(model_type)[:60]} either; code of its own is never run."
        )
    try:
        config = package.CONFIG_MAPPING[model_type].from_dict(dict(document))
        depth = _integer(config.get_text_config(decoder=True), "num_hidden_layers") or 0
        if depth > _MAX_BLOCKS:
            raise ValueError(f"{depth:,} blocks, and at most {_MAX_BLOCKS:,} are built")
        model = _made(package, config)
    except Exception as error:
        reason = " ".join(str(error).split())[:200]
        raise ConfigurationError(
            f"{who}: transformers {package.__version__} cannot build a {model_type} of this "
            f"configuration ({type(error).__name__}: {reason})."
        ) from error
    tensors = tuple(_tensors(model))
    return BuiltModel(_sizes(config, str(model_type), tensors), tensors)


def _made(package: Any, config: Any) -> Any:
    """The model on the meta device; of several joined in one, the language model where asked."""
    import torch

    model_class = _model_class(package, config)
    with torch.device("meta"), warnings.catch_warnings():
        # A vocabulary of none, say: the audit has words of its own for odd sizes.
        warnings.simplefilter("ignore")
        try:
            return model_class(config)
        except (AttributeError, TypeError):
            text = config.get_text_config(decoder=True)
            if text is config:
                raise
            return model_class(text)


def _model_class(package: Any, config: Any) -> Any:
    for name in getattr(config, "architectures", None) or ():
        model_class = getattr(package, str(name), None)
        if isinstance(model_class, type) and issubclass(model_class, package.PreTrainedModel):
            return model_class
    for mapping in (package.MODEL_FOR_CAUSAL_LM_MAPPING, package.MODEL_MAPPING):
        if type(config) in mapping:
            mapped = mapping[type(config)]
            return mapped[0] if isinstance(mapped, (tuple, list)) else mapped
    raise ValueError(f"{type(config).__name__} belongs to no model")


def _tensors(model: Any) -> "list[ExpectedTensor]":
    tied_names = set(getattr(model, "all_tied_weights_keys", None) or ())
    seen: set[int] = set()
    tensors = []
    for name, parameter in model.named_parameters(remove_duplicate=False):
        is_tied = id(parameter) in seen or name in tied_names
        seen.add(id(parameter))
        part = Part.HEAD if name.startswith("lm_head.") else Part(part_of(name))
        tensors.append(ExpectedTensor(name, tuple(parameter.shape), part, is_tied))
    return tensors


def _sizes(config: Any, family: str, tensors: tuple[ExpectedTensor, ...]) -> Configuration | None:
    text = config.get_text_config(decoder=True)
    depth, width, heads = (
        _integer(text, name) for name in ("num_hidden_layers", "hidden_size", "num_attention_heads")
    )
    if depth is None or width is None or heads is None:
        return None
    vocabulary = _integer(text, "vocab_size")
    inner = _integer(text, "intermediate_size")
    experts = _integer(text, "num_local_experts") or _integer(text, "num_experts")
    return Configuration(
        family=family,
        depth=depth,
        width=width,
        heads=heads,
        head_size=_integer(text, "head_dim") or max(1, width // heads),
        key_value_heads=_integer(text, "num_key_value_heads") or heads,
        feed_forward=inner or 4 * width,
        vocabulary=vocabulary,
        embedding_rank=width if vocabulary is None else min(width, vocabulary),
        parameters=count_parameters(tensors),
        num_experts=experts or 1,
    )


def _integer(config: Any, name: str) -> int | None:
    try:
        value = getattr(config, name, None)
    except Exception:  # noqa: BLE001 - some configurations refuse what differs from block to block
        return None
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
