"""The trainable networks that come with the package, by the names that the command line knows.

Reading this table loads no torch: a network's class is imported when the network is built.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rankscope.errors import RequestError

if TYPE_CHECKING:
    from torch import Tensor, nn


@dataclass(frozen=True)
class BuiltIn:
    """A network with a name.

    Args:
        make: builds it untrained.
        input_shape: of the smallest batch that it usually takes.
        data_set: that it was made for, by the name that `load_data_set` knows; None if it is none.
        takes_tokens: whether inputs are the numbers of tokens, not pixels.
        takes_pixels: whether inputs are pixels in 0..1 as they are, not scaled as in training.
        has_weights: whether trained weights come with the package.
        convert: names and layouts of a public file with the same weights, as the network has them:
            the place of a function.
    """

    make: "Callable[[], nn.Module]"
    input_shape: tuple[int, ...]
    data_set: str | None = None
    takes_tokens: bool = False
    takes_pixels: bool = False
    has_weights: bool = False
    convert: str | None = None

    def example(self, shapes: Sequence[tuple[int, ...]] = ()) -> "Tensor | tuple[Tensor, ...]":
        """A batch of ones of the kind that the network takes, in the usual shape or in others."""
        import torch

        dtype = torch.long if self.takes_tokens else None
        if not shapes:
            return torch.ones(self.input_shape, dtype=dtype)
        return tuple(torch.ones(shape, dtype=dtype) for shape in shapes)


def _of(place: str, *sizes: Any, **options: Any) -> "Callable[[], nn.Module]":
    """Build the class that stands at a place of this package."""
    return lambda: _imported(place)(*sizes, **options)


def _imported(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(import_module(f"rankscope.{module}"), name)


def _in_cp_layers(make: "Callable[[], nn.Module]") -> "Callable[[], nn.Module]":
    return lambda: _imported("networks.cp_networks:with_cp_layers")(make())


def _centred(place: str, *sizes: Any, **options: Any) -> "Callable[[], nn.Module]":
    """Subtract only the means of pixels, so that distances between images stay."""
    return lambda: _imported(place)(
        *sizes, scaling=_imported("robust.networks:centred_cifar10")(), **options
    )


def _lipschitz_digits() -> "nn.Module":
    from rankscope.robust.networks import LipConvNet
    from rankscope.robust.norm_preserving import OrthogonalLinear

    return LipConvNet(6, width=16, num_blocks=3, image=(1, 8, 8), last_layer=OrthogonalLinear)


def _encoder(sizes: str) -> "Callable[[], nn.Module]":
    def make() -> "nn.Module":
        from rankscope.networks import encoder

        known = {"minilm": encoder.MINILM, "bert": encoder.EncoderSizes()}
        return encoder.Encoder(known[sizes])

    return make


def _images(make: "Callable[[], nn.Module]", *, takes_pixels: bool = False) -> BuiltIn:
    return BuiltIn(make, (1, 3, 32, 32), data_set="cifar10", takes_pixels=takes_pixels)


def _digits(
    make: "Callable[[], nn.Module]", *, takes_pixels: bool = False, has_weights: bool = False
) -> BuiltIn:
    return BuiltIn(make, (1, 1, 8, 8), "digits", takes_pixels=takes_pixels, has_weights=has_weights)


def _tokens(
    make: "Callable[[], nn.Module]",
    *,
    length: int = 64,
    convert: str | None = None,
    has_weights: bool = False,
) -> BuiltIn:
    return BuiltIn(make, (1, length), takes_tokens=True, has_weights=has_weights, convert=convert)


_DIGITS = _of("networks.image:DigitsNetwork")
_VGG = _of("networks.image:VGG16")
_WIDE_RESNET = _of("networks.image:WideResNet", 28, 10)
_SMALL_GPT = "networks.language:SmallGPT"
_FROM_GPT2 = "networks.language:from_gpt2"
_LIPSCHITZ_WIDE = "robust.networks:WideResNet"

BUILT_IN: Mapping[str, BuiltIn] = {
    "digits": _digits(_DIGITS, has_weights=True),
    "transformer": _tokens(
        _of(_SMALL_GPT, 148, num_positions=64, width=48, num_layers=4, num_heads=4),
        convert=_FROM_GPT2,
        has_weights=True,
    ),
    **{
        f"resnet{depth}": _images(_of("networks.image:ResNet", depth)) for depth in (20, 32, 44, 56)
    },
    "vgg16-bn": _images(_VGG),
    "wide-resnet-28-10": _images(_WIDE_RESNET),
    # With as many parameters, in CP layers all but the first and the last.
    "cp-digits": _digits(_in_cp_layers(_DIGITS)),
    "cp-resnet20": _images(_in_cp_layers(_of("networks.image:ResNet", 20))),
    "cp-vgg16-bn": _images(_in_cp_layers(_VGG)),
    "cp-wide-resnet-28-10": _images(_in_cp_layers(_WIDE_RESNET)),
    # The words of WikiText-2, in the sizes that PyTorch's example takes by default.
    "lstm-language-model": _tokens(
        _of("networks.language:RecurrentLanguageModel", 33278, is_tied=True)
    ),
    # The characters of Shakespeare's plays, in the sizes of nanoGPT's smallest example.
    "small-gpt": _tokens(
        _of(_SMALL_GPT, 65, num_positions=256, width=384, num_layers=6, num_heads=6),
        convert=_FROM_GPT2,
    ),
    "bert-encoder": _tokens(_encoder("bert")),
    "minilm": _tokens(_encoder("minilm")),
    "letter-to-phoneme": _tokens(
        _of("networks.language:LetterToPhoneme"),
        length=16,
        convert="networks.language:from_g2p_en",
    ),
    # With a proved Lipschitz constant.
    "lipschitz-digits": _digits(_lipschitz_digits, takes_pixels=True),
    "lipschitz-resnet9": _images(_centred("robust.networks:ResNet9"), takes_pixels=True),
    "lipschitz-resnet9-small": _images(
        _centred("robust.networks:ResNet9", width=16), takes_pixels=True
    ),
    **{
        f"lipschitz-wide-resnet-{depth}-{width}": _images(
            _centred(_LIPSCHITZ_WIDE, depth, width), takes_pixels=True
        )
        for depth, width in ((10, 1), (16, 1), (22, 1), (28, 1), (10, 10), (22, 10))
    },
    **{
        f"lip-convnet-{depth}": _images(
            _centred("robust.networks:LipConvNet", depth), takes_pixels=True
        )
        for depth in (5, 10, 15, 20, 25, 30, 35, 40)
    },
}


def build(name: str) -> "nn.Module":
    """A built-in network, untrained unless its weights come with the package.

    Raises:
        RequestError: if there is no network of that name.
    """
    from rankscope.networks.published_weights import embedded_weights

    entry = _entry(name)
    if entry.has_weights:
        return _with_weights(name, entry.make(), embedded_weights(name))
    return entry.make()


def build_trained(
    name: str, *, weights: Path | None = None, data: Path | None = None
) -> "nn.Module":
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
    from rankscope.networks.published_weights import find_weights

    make = _entry(name).make
    path = find_weights(name, data) if weights is None else weights
    return _with_weights(name, make(), path)


def _entry(name: str) -> BuiltIn:
    if name not in BUILT_IN:
        raise RequestError(
            f"There is no built-in network {name!r}; choose one of {', '.join(BUILT_IN)}."
        )
    return BUILT_IN[name]


def _with_weights(name: str, model: "nn.Module", path: Path) -> "nn.Module":
    from rankscope.networks.weight_files import load_weights, read_weights

    place = BUILT_IN[name].convert
    tensors = read_weights(path)
    load_weights(model, tensors if place is None else _imported(place)(tensors), who=str(path))
    return model.eval()
