"""Compressed models of transformers as ordinary folders, which `from_pretrained` gives back.

The plan stands in `config.json` as its `quantization_config`, with the method `rankscope`, and the
cores in `model.safetensors`. `import rankscope.hf` registers the two classes below; transformers
then builds the dense model without numbers, `RankscopeQuantizer` puts blank factorized modules into
their places, and the file fills them.

A transformers that does not know the method only warns, and would go on with random weights. So
every weight that was factorized still has a tensor of its dense name in the file, with a single
number: it fits no model, and whoever loads by dense names gets an error.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import torch
from torch import Tensor, nn

from rankscope.compression.applying import blank_layers
from rankscope.compression.plan import Plan, Row, plan_from_dict
from rankscope.errors import CompressionError, LayerError, ModelFileError
from rankscope.extras import transformers
from rankscope.modes import inference

transformers()  # first of all: it says which extra is missing
from transformers import PreTrainedModel  # noqa: E402
from transformers.quantizers import HfQuantizer  # noqa: E402
from transformers.utils.quantization_config import QuantizationConfigMixin  # noqa: E402

METHOD = "rankscope"
_SHOWN = 4  # names in a message, at most
_ALIGNMENT = 64  # bytes, as torch allocates
# The dense parameter of a module that no longer is one, where it is not called weight.
_DENSE_NAMES = {"MultiheadAttention": "in_proj_weight"}


class RankscopeConfig(QuantizationConfigMixin):  # type: ignore[misc]
    """The `quantization_config` of a compressed model.

    Args:
        plan: as `Plan.to_dict` gives it.
        quant_method: always "rankscope".
    """

    def __init__(
        self,
        plan: Mapping[str, Any] | None = None,
        quant_method: str = METHOD,
        **unknown: object,
    ) -> None:
        if unknown or quant_method != METHOD:
            raise ModelFileError(
                f"quantization_config: wanted quant_method {METHOD!r} and a plan, got "
                f"{quant_method!r} and {', '.join(map(repr, unknown)) or 'nothing else'}."
            )
        self.quant_method = quant_method
        self.plan = json.loads(json.dumps(plan))

    def read(self) -> Plan:
        """The plan.

        Raises:
            ModelFileError: if it is none.
        """
        return plan_from_dict(self.plan, who="quantization_config is no plan")


class RankscopeQuantizer(HfQuantizer):  # type: ignore[misc]
    """What transformers asks when it loads and saves a compressed model."""

    requires_calibration = True

    def _process_model_before_weight_loading(self, model: nn.Module, **options: object) -> None:
        del options
        _tie(model)
        plan = self.quantization_config.read()
        chosen = _rows_for(model, plan)
        try:
            layers = blank_layers(model, chosen)
        except LayerError as error:
            raise CompressionError(f"The plan does not fit the model. {error}") from error
        for name, layer in layers.items():
            bias = getattr(model.get_submodule(name), "bias", None)
            if isinstance(bias, nn.Parameter):
                layer.register_parameter("bias", bias)  # it may stand elsewhere, too
            model.set_submodule(name, layer)
        _retie(model)
        _ignore_guards(model, plan)
        self._kinds = {name: _kind(value) for name, value in model.state_dict().items()}

    def _process_model_after_weight_loading(self, model: nn.Module, **options: object) -> None:
        del options
        # Cores are numbers like others: they may be cast and trained.
        model.is_quantized = False  # type: ignore[assignment]
        away = [name for name, tensor in model.state_dict().items() if tensor.is_meta]
        if away:
            raise CompressionError(
                f"device_map: {len(away)} tensors are offloaded, such as "
                f"{', '.join(away[:_SHOWN])}; a compressed model must stay in memory."
            )
        missing = [
            name
            for name, tensor in model.state_dict(keep_vars=True).items()
            if not getattr(tensor, "_is_hf_initialized", False) and not _is_tied(model, name)
        ]
        if missing:
            raise ModelFileError(
                f"The folder's plan and weights do not fit: {len(missing)} tensors are not in its "
                f"files, such as {', '.join(missing[:_SHOWN])}. Save the model again."
            )
        for name, value in model.state_dict().items():
            if _kind(value) != self._kinds.get(name, _kind(value)):
                raise ModelFileError(
                    f"The folder's plan and weights do not fit: {name} holds {_kind(value)}, "
                    f"wanted {self._kinds[name]}. Save the model again."
                )
        _align(model)

    def get_state_dict_and_metadata(
        self, model: nn.Module
    ) -> tuple[dict[str, Tensor], dict[str, str]]:
        """All tensors, and one of a single number for every weight that there was."""
        return {**model.state_dict(), **guards(self.quantization_config.read())}, {}

    def is_serializable(self, **options: object) -> bool:
        """Always."""
        del options
        return True

    @property
    def is_trainable(self) -> bool:
        """Cores are parameters."""
        return True

    @property
    def is_qat_trainable(self) -> bool:
        """Nothing is rounded while it trains."""
        return True

    @property
    def is_compileable(self) -> bool:
        """Factorized layers are ordinary modules."""
        return True


def _align(model: nn.Module) -> None:
    """Copy what a mapped file holds at odd addresses: products would be rounded otherwise there."""
    for tensor in (*model.parameters(), *model.buffers()):
        if not tensor.is_meta and tensor.data_ptr() % _ALIGNMENT:
            tensor.data = tensor.data.clone()


def _kind(tensor: Tensor) -> str:
    """The shape, and fractions (cast to any precision when they are loaded) or exact integers."""
    kind = "fractions" if tensor.is_floating_point() else str(tensor.dtype)
    return f"{kind} of shape {tuple(tensor.shape)}"


def attach(model: nn.Module, plan: Plan) -> None:
    """Make a compressed model of transformers one that `save_pretrained` writes as it is.

    Args:
        model: compressed already; it is changed.
        plan: that it follows.
    """
    held = cast(Any, model)
    config = RankscopeConfig(plan.to_dict())
    held.config.quantization_config = config
    held.hf_quantizer = RankscopeQuantizer(config, pre_quantized=True)
    held.quantization_method = METHOD
    _retie(model)


def usual_inputs(model: nn.Module) -> dict[str, Tensor]:
    """A batch of the kind that a model takes: a few tokens, an image, or both."""
    held = cast(Any, model)
    config = held.config
    inputs: dict[str, Tensor] = {}
    vision = getattr(config, "vision_config", None)
    if vision is not None or held.main_input_name == "pixel_values":
        source = vision or config
        size = source.image_size
        height, width = (size, size) if isinstance(size, int) else size
        inputs["pixel_values"] = torch.zeros(2, getattr(source, "num_channels", 3), height, width)
    if held.main_input_name == "input_ids":
        inputs["input_ids"] = held.dummy_inputs["input_ids"]
    if getattr(config, "is_encoder_decoder", False) and "input_ids" in inputs:
        inputs["decoder_input_ids"] = inputs["input_ids"]
    return inputs


def tried_inputs(model: nn.Module) -> dict[str, Tensor] | None:
    """A batch on which the model runs; None if the usual one does not suit it."""
    try:
        inputs = usual_inputs(model)
        with torch.no_grad(), inference(model):
            model(**inputs)
    except Exception:  # noqa: BLE001 - models raise anything on inputs that are not theirs
        return None
    return inputs


def guards(plan: Plan) -> dict[str, Tensor]:
    """A single number under the dense name of every weight that a plan writes smaller.

    Of packed experts as many as transformers can take apart when it writes them one by one.
    """
    packed = {row.name: row.shape[-1] for row in plan.rows if _is_packed(row)}
    return {
        name: torch.zeros(packed[name], 2, 1) if name in packed else torch.zeros(1)
        for name in _dense_names(plan)
    }


def _is_packed(row: Row) -> bool:
    return row.kind.endswith("Experts")


def _dense_names(plan: Plan) -> list[str]:
    names = []
    for row in plan.rows:
        if row.format is None:
            continue
        if row.kind in _DENSE_NAMES:
            names.append(f"{row.name.rpartition('.')[0]}.{_DENSE_NAMES[row.kind]}")
        else:
            has_own = row.kind in ("LSTM", "GRU") or _is_packed(row)
            names.append(row.name if has_own else f"{row.name}.weight")
    return list(dict.fromkeys(names))


def _ignore_guards(model: nn.Module, plan: Plan) -> None:
    known = cast(Any, model)._keys_to_ignore_on_load_unexpected or set()
    endings = {rf"(^|\.){re.escape(name)}$" for name in _dense_names(plan)}
    prefix = re.escape(cast(Any, model).base_model_prefix or " ")
    bare = {re.sub(rf"^\(\^\|\\\.\){prefix}\\\.", r"(^|\\.)", ending) for ending in endings}
    cast(Any, model)._keys_to_ignore_on_load_unexpected = {*known, *endings, *bare}


def _rows_for(model: nn.Module, plan: Plan) -> dict[str, Row]:
    """The rows that have a format, under the names of this model.

    A model without its head calls the same weights by names without the prefix of the base model,
    and one with another head by names with it.
    """
    chosen = {row.name: row for row in plan.rows if row.format is not None}
    prefix = f"{cast(Any, model).base_model_prefix}."
    modules = {name for name, _ in model.named_modules(remove_duplicate=False)}
    has_prefix = prefix[:-1] in modules
    if has_prefix and not any(name.startswith(prefix) for name in chosen):
        return {prefix + name: replace(row, name=prefix + name) for name, row in chosen.items()}
    if not has_prefix and all(name not in modules for name in chosen):
        inner = {n.removeprefix(prefix): row for n, row in chosen.items() if n.startswith(prefix)}
        return {name: replace(row, name=name) for name, row in inner.items()} or chosen
    return chosen


def _tie(model: nn.Module) -> None:
    """Tie the parameters now that transformers would tie after it has loaded them."""
    for name, source in cast(Any, model).all_tied_weights_keys.items():
        holder, _, part = name.rpartition(".")
        model.get_submodule(holder).register_parameter(part, model.get_parameter(source))


def _retie(model: nn.Module) -> None:
    """Tell transformers which of its tied parameters are still two names of one."""
    names: dict[int, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(name)
    tied = {other: first for first, *others in names.values() for other in others}
    for inner in model.modules():
        if isinstance(inner, PreTrainedModel):
            inner._tied_weights_keys = None
            inner.all_tied_weights_keys = {}
    held = cast(Any, model)
    held._tied_weights_keys = {re.escape(one): re.escape(two) for one, two in tied.items()} or None
    held.all_tied_weights_keys = tied


def _is_tied(model: nn.Module, name: str) -> bool:
    return name in cast(Any, model).all_tied_weights_keys
