"""The networks that come with the package, by the names that the command line knows."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from torch import Tensor, nn

from rankscope.architectures.models.cp_networks import with_cp_layers
from rankscope.architectures.models.digits import DigitsNetwork
from rankscope.architectures.models.encoder import MINILM, Encoder, EncoderSizes
from rankscope.architectures.models.language_model import RecurrentLanguageModel
from rankscope.architectures.models.letter_to_phoneme import LetterToPhoneme, from_g2p_en
from rankscope.architectures.models.published_weights import embedded_weights, find_weights
from rankscope.architectures.models.residual import ResNet
from rankscope.architectures.models.small_gpt import SmallGPT, from_gpt2
from rankscope.architectures.models.vgg import VGG16
from rankscope.architectures.models.weight_files import load_weights, read_weights
from rankscope.architectures.models.wide_resnet import WideResNet
from rankscope.errors import RequestError


def _digits() -> nn.Module:
    return _with_weights("digits", DigitsNetwork(), embedded_weights("digits"))


def _transformer() -> nn.Module:
    model = SmallGPT(148, num_positions=64, width=48, num_layers=4, num_heads=4)
    return _with_weights("transformer", model, embedded_weights("transformer"))


def _with_cp_layers(network: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
    return lambda: with_cp_layers(network())


# Untrained, except for the two whose weights come with the package: digits and transformer.
BUILT_IN: dict[str, Callable[[], nn.Module]] = {
    "digits": _digits,
    "transformer": _transformer,
    "resnet20": partial(ResNet, 20),
    "resnet32": partial(ResNet, 32),
    "resnet44": partial(ResNet, 44),
    "resnet56": partial(ResNet, 56),
    "vgg16-bn": VGG16,
    "wide-resnet-28-10": partial(WideResNet, 28, 10),
    # With as many parameters, in CP layers all but the first and the last.
    "cp-digits": _with_cp_layers(DigitsNetwork),
    "cp-resnet20": _with_cp_layers(partial(ResNet, 20)),
    "cp-vgg16-bn": _with_cp_layers(VGG16),
    "cp-wide-resnet-28-10": _with_cp_layers(partial(WideResNet, 28, 10)),
    # The words of WikiText-2, in the sizes that PyTorch's example takes by default.
    "lstm-language-model": partial(RecurrentLanguageModel, 33278, is_tied=True),
    # The characters of Shakespeare's plays, in the sizes of nanoGPT's smallest example.
    "small-gpt": partial(SmallGPT, 65, num_positions=256, width=384, num_layers=6, num_heads=6),
    "bert-encoder": partial(Encoder, EncoderSizes()),
    "minilm": partial(Encoder, MINILM),
    "letter-to-phoneme": LetterToPhoneme,
}

# Public files that store the same numbers under other names, or transposed.
_CONVERSIONS: dict[str, Callable[[Mapping[str, Tensor]], dict[str, Tensor]]] = {
    "letter-to-phoneme": from_g2p_en,
    "small-gpt": from_gpt2,
    "transformer": from_gpt2,
}


def build(name: str) -> nn.Module:
    """A built-in network, untrained unless its weights come with the package.

    Raises:
        RequestError: if there is no network of that name.
    """
    if name not in BUILT_IN:
        raise RequestError(
            f"There is no built-in network {name!r}; choose one of {', '.join(BUILT_IN)}."
        )
    return BUILT_IN[name]()


def build_trained(name: str, *, weights: Path | None = None, data: Path | None = None) -> nn.Module:
    """A built-in network with trained weights, in inference mode.

    Args:
        name: of the network.
        weights: file to read; None for the published one, which is looked for in `data`.
        data: folder to look in; None for those of the environment variable RANKSCOPE_DATA.

    Example:
        >>> model = build_trained("digits")
        >>> sum(weight.numel() for weight in model.parameters())
        19178

    Raises:
        RequestError: if there is no network of that name.
        DataError: if no published weights are there; the message says how to get them.
        ModelFileError: if the file does not hold this network.
    """
    model = build(name)
    return _with_weights(name, model, find_weights(name, data) if weights is None else weights)


def _with_weights(name: str, model: nn.Module, path: Path) -> nn.Module:
    tensors = read_weights(path)
    convert = _CONVERSIONS.get(name, dict)
    load_weights(model, convert(tensors), who=str(path))
    return model.eval()
