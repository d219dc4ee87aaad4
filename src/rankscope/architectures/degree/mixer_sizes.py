"""The sizes of an MLP-Mixer, shared by the one that is trained and the one that is measured."""

from dataclasses import dataclass

from rankscope.architectures.sizes import require_sizes


@dataclass(frozen=True)
class MixerSizes:
    """How large a mixer is.

    Args:
        num_tokens: inputs (patches of an image).
        input_size: entries of an input vector.
        width: channels.
        token_hidden: hidden units of the perceptron over tokens.
        channel_hidden: hidden units of the perceptron over channels.
        depth: blocks.

    Raises:
        SizeError: if a size is not positive, or there are fewer than two tokens.
    """

    num_tokens: int
    input_size: int
    width: int
    token_hidden: int
    channel_hidden: int
    depth: int

    def __post_init__(self) -> None:
        require_sizes("MixerSizes", least=2, num_tokens=self.num_tokens)
        require_sizes(
            "MixerSizes",
            input_size=self.input_size,
            width=self.width,
            token_hidden=self.token_hidden,
            channel_hidden=self.channel_hidden,
            depth=self.depth,
        )
