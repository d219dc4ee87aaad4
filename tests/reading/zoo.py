"""Models of other libraries with random weights, small where they allow it.

The page docs/models.md is made from them, and a slow test reads some.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import nn

# The wheel of torchvision here lacks its compiled operators, which it names when imported.
_LIBRARY = torch.library.Library("torchvision", "FRAGMENT")  # type: ignore[no-untyped-call]
for _name in ("nms", "qnms"):
    # Another wheel has them already.
    with suppress(RuntimeError):
        _LIBRARY.define(  # type: ignore[no-untyped-call]
            f"{_name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
        )


@dataclass(frozen=True)
class Model:
    """A model to read: where it comes from, how it is made, and what it is given."""

    source: str
    name: str
    make: Callable[[], nn.Module]
    example: Any

    def build(self) -> nn.Module:
        """The model in inference mode, with random weights where they would all be zero."""
        torch.manual_seed(0)
        model = self.make().eval()
        with torch.no_grad():
            for parameter in model.parameters():
                if not parameter.any():
                    parameter.normal_(std=0.02)
        return model


TORCHVISION = (
    "resnet18",
    "resnet50",
    "mobilenet_v3_small",
    "efficientnet_b0",
    "convnext_tiny",
    "densenet121",
    "squeezenet1_1",
    "googlenet",
    "shufflenet_v2_x1_0",
    "vit_b_16",
    "swin_t",
    "regnet_y_400mf",
    "vgg11",
    "maxvit_t",
)
TIMM: dict[str, dict[str, Any]] = {
    "resnet26": {},
    "deit_tiny_patch16_224": {},
    "eva02_tiny_patch14_224": {},
    "mixer_s32_224": {},
    "convnextv2_atto": {},
    "efficientformer_l1": {},
    "mobilevit_xxs": {},
    "edgenext_xx_small": {},
    "levit_128s": {},
    "poolformer_s12": {},
    "hiera_tiny_224": {},
}
SMALL = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 200,
}


def _torchvision(name: str) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        import torchvision  # type: ignore[import-untyped]

        options: dict[str, Any] = {"weights": None}
        if name == "googlenet":
            options |= {"init_weights": False, "aux_logits": False}
        model: nn.Module = torchvision.models.get_model(name, **options)
        return model

    return make


def four_block_resnet() -> nn.Module:
    """ResNet-18 of torchvision with one block in each stage instead of two."""
    from torchvision.models.resnet import BasicBlock, ResNet  # type: ignore[import-untyped]

    model: nn.Module = ResNet(BasicBlock, [1, 1, 1, 1])
    return model


def two_block_mixer() -> nn.Module:
    """Mixer-S/32 with two of its eight blocks, for images of 96 x 96 pixels."""
    from timm.models.mlp_mixer import MlpMixer

    model: nn.Module = MlpMixer(img_size=96, patch_size=32, num_blocks=2, embed_dim=512)
    return model


def _timm(name: str, options: dict[str, Any]) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        import timm

        model: nn.Module = timm.create_model(name, pretrained=False, **options)
        return model

    return make


def _transformers(model: str, config: str, **options: Any) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        import transformers

        settings = getattr(transformers, config)(**options)
        settings.use_cache = False
        made: nn.Module = getattr(transformers, model)(settings)
        return made

    return make


def _tokens(length: int = 12) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return {"input_ids": torch.randint(3, 200, (2, length), generator=generator)}


def _transformers_models() -> Iterator[Model]:
    decoder = SMALL | {"num_key_value_heads": 2, "head_dim": 16}
    gpt = {"n_embd": 64, "n_layer": 2, "n_head": 4, "vocab_size": 200, "n_positions": 64}
    texts = {
        "Llama": ("LlamaForCausalLM", "LlamaConfig", decoder),
        "Mistral": ("MistralForCausalLM", "MistralConfig", decoder | {"sliding_window": 8}),
        "Qwen3": ("Qwen3ForCausalLM", "Qwen3Config", decoder),
        "GPT-2": ("GPT2LMHeadModel", "GPT2Config", gpt),
        "GPT-NeoX": ("GPTNeoXForCausalLM", "GPTNeoXConfig", SMALL),
        "Gemma-2": ("Gemma2ForCausalLM", "Gemma2Config", decoder | {"sliding_window": 8}),
        "Phi": ("PhiForCausalLM", "PhiConfig", SMALL),
        "OPT": (
            "OPTForCausalLM",
            "OPTConfig",
            SMALL | {"ffn_dim": 128, "word_embed_proj_dim": 64, "max_position_embeddings": 64},
        ),
        "BERT": ("BertModel", "BertConfig", SMALL),
        "RoBERTa": ("RobertaModel", "RobertaConfig", SMALL),
        "DistilBERT": (
            "DistilBertModel",
            "DistilBertConfig",
            {"dim": 64, "hidden_dim": 128, "n_layers": 2, "n_heads": 4, "vocab_size": 200},
        ),
        "T5 encoder": (
            "T5EncoderModel",
            "T5Config",
            {
                "d_model": 64,
                "d_kv": 16,
                "d_ff": 128,
                "num_layers": 2,
                "num_heads": 4,
                "vocab_size": 200,
            },
        ),
    }
    for name, (model, config, options) in texts.items():
        yield Model("transformers", name, _transformers(model, config, **options), _tokens())
    image = {**SMALL, "image_size": 32, "patch_size": 8}
    image.pop("vocab_size")
    pixels = {"pixel_values": torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(1))}
    yield Model("transformers", "ViT", _transformers("ViTModel", "ViTConfig", **image), pixels)
    yield Model(
        "transformers",
        "CLIP vision",
        _transformers("CLIPVisionModel", "CLIPVisionConfig", **image),
        pixels,
    )
    mamba = {"hidden_size": 32, "num_hidden_layers": 2, "vocab_size": 200, "state_size": 8}
    yield Model(
        "transformers",
        "Mamba",
        _transformers("MambaForCausalLM", "MambaConfig", **mamba),
        _tokens(8),
    )


def models() -> tuple[Model, ...]:
    """All forty, in the order of the page."""
    image = torch.rand(2, 3, 224, 224, generator=torch.Generator().manual_seed(1))
    return (
        *(Model("torchvision", name, _torchvision(name), image) for name in TORCHVISION),
        *(Model("timm", name, _timm(name, options), image) for name, options in TIMM.items()),
        *_transformers_models(),
    )


def built_in() -> tuple[Model, ...]:
    """The networks that come with the package, with two samples of what their catalogue says."""
    from rankscope.networks import BUILT_IN

    return tuple(
        Model("rankscope", name, entry.make, sample(entry)) for name, entry in BUILT_IN.items()
    )


def sample(entry: Any) -> torch.Tensor:
    """Two random samples of the kind and the shape that a built-in network takes."""
    generator = torch.Generator().manual_seed(1)
    shape = (2, *entry.input_shape[1:])
    # All vocabularies have at least 28 entries, and number 0 is padding in some.
    if entry.takes_tokens:
        return torch.randint(1, 28, shape, generator=generator)
    return torch.rand(shape, generator=generator)


# Where the first share of the parameters cannot be reached, the second is tried.
SHARES = (0.5, 0.8)


def compressed() -> tuple[Model, ...]:
    """What `compress` makes of every built-in network."""
    return tuple(
        replace(model, source="compressed", make=partial(_compressed, model))
        for model in built_in()
    )


def _compressed(model: Model) -> nn.Module:
    import rankscope
    from rankscope.errors import CompressionError

    with suppress(CompressionError):
        half: nn.Module = rankscope.compress(model.build(), SHARES[0], example=model.example).model
        return half
    more: nn.Module = rankscope.compress(model.build(), SHARES[1], example=model.example).model
    return more
