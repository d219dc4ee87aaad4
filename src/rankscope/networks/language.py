"""Built-in sequence networks: a small GPT, an LSTM language model, letters to phonemes."""

import re
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from rankscope.errors import SizeError

# --- GPT-2 of any size, of plain linear maps, and its public weights under our names --------------


class CausalAttention(nn.Module):
    """Every token mixes the values of itself and those before it, in several heads."""

    def __init__(self, width: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.joined = nn.Linear(width, 3 * width)  # queries, keys, values
        self.out = nn.Linear(width, width)

    def forward(self, inputs: Tensor) -> Tensor:
        """(batch, tokens, width) to the same."""
        parts = self.joined(inputs).unflatten(-1, (3, self.num_heads, -1)).transpose(1, 3)
        queries, keys, values = parts.unbind(2)
        mixed = nn.functional.scaled_dot_product_attention(queries, keys, values, is_causal=True)
        outputs: Tensor = self.out(mixed.transpose(1, 2).flatten(2))
        return outputs


class Block(nn.Module):
    """Attention, then two maps with a GELU between them, each added to its input."""

    def __init__(self, width: int, num_heads: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = CausalAttention(width, num_heads)
        self.widen = nn.Linear(width, 4 * width)
        self.narrow = nn.Linear(4 * width, width)

    def forward(self, inputs: Tensor) -> Tensor:
        """(batch, tokens, width) to the same."""
        attended = inputs + self.attention(self.norm1(inputs))
        hidden = nn.functional.gelu(self.widen(self.norm2(attended)), approximate="tanh")
        outputs: Tensor = attended + self.narrow(hidden)
        return outputs


class SmallGPT(nn.Module):
    """A decoder of tokens; the last map has the weight of the embedding, which counts once.

    Args:
        vocabulary: number of tokens.
        num_positions: tokens that fit into one sequence.
        width: of the residual stream.
        num_layers: number of blocks.
        num_heads: of each attention; must divide the width.

    Example:
        >>> model = SmallGPT(65, num_positions=32, width=24, num_layers=2, num_heads=3)
        >>> model(torch.zeros(1, 5, dtype=torch.long)).shape
        torch.Size([1, 5, 65])

    Raises:
        SizeError: if the heads do not share the width evenly.
    """

    places: Tensor  # the numbers of all positions

    def __init__(
        self, vocabulary: int, *, num_positions: int, width: int, num_layers: int, num_heads: int
    ) -> None:
        super().__init__()
        if num_heads < 1 or width % num_heads:
            raise SizeError(f"SmallGPT: {num_heads} heads cannot share a width of {width} evenly.")
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(num_positions, width)
        self.blocks = nn.Sequential(*(Block(width, num_heads) for _ in range(num_layers)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.tokens.weight
        self.register_buffer("places", torch.arange(num_positions), persistent=False)
        for embedding in (self.tokens, self.positions):
            nn.init.normal_(embedding.weight, std=0.02)

    def forward(self, tokens: Tensor) -> Tensor:
        """Numbers (batch, tokens) to logits (batch, tokens, vocabulary) of the next one each."""
        places = self.places[: tokens.shape[1]]
        states = self.blocks(self.tokens(tokens) + self.positions(places))
        logits: Tensor = self.head(self.norm(states))
        return logits


# Theirs and ours; # stands for the number of a block.
_NAMES = (
    ("wte.", "tokens."),
    ("wpe.", "positions."),
    ("ln_f.", "norm."),
    ("h.#.ln_1.", "blocks.#.norm1."),
    ("h.#.ln_2.", "blocks.#.norm2."),
    ("h.#.attn.c_attn.", "blocks.#.attention.joined."),
    ("h.#.attn.c_proj.", "blocks.#.attention.out."),
    ("h.#.mlp.c_fc.", "blocks.#.widen."),
    ("h.#.mlp.c_proj.", "blocks.#.narrow."),
    ("lm_head.", "head."),
)
_MAP = re.compile(r"\.c_(attn|proj|fc)\.weight$")  # stored as (inputs, outputs)
# Tables of which positions may see which: in old files, and not learned.
_MASKS = re.compile(r"(transformer\.)?h\.\d+\.attn\.(bias|masked_bias)")


def from_gpt2(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Weights of a GPT-2 file under the names of `SmallGPT`; other names stay as they are.

    Example:
        >>> [
        ...     (name, *weight.shape)
        ...     for name, weight in from_gpt2(
        ...         {"transformer.h.0.attn.c_attn.weight": torch.zeros(8, 24)}
        ...     ).items()
        ... ]
        [('blocks.0.attention.joined.weight', 24, 8)]
    """
    converted = {}
    for name, tensor in tensors.items():
        if not _MASKS.fullmatch(name):
            ours = _rename(name.removeprefix("transformer."), _NAMES)
            converted[ours] = tensor.T.contiguous() if _MAP.search(name) else tensor
    return converted


def to_gpt2(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Weights of a `SmallGPT` under the names of GPT-2's files; the tied head is left out.

    Example:
        >>> model = SmallGPT(11, num_positions=9, width=12, num_layers=1, num_heads=3)
        >>> to_gpt2(model.state_dict())["h.0.attn.c_attn.weight"].shape
        torch.Size([12, 36])
    """
    converted = {}
    for name, tensor in tensors.items():
        if name != "head.weight":
            theirs = _rename(name, tuple((ours, theirs) for theirs, ours in _NAMES))
            converted[theirs] = tensor.T.contiguous() if _MAP.search(theirs) else tensor
    return converted


def _rename(name: str, pairs: tuple[tuple[str, str], ...]) -> str:
    for old, new in pairs:
        pattern = re.escape(old).replace(r"\#", r"(\d+)")
        if re.match(pattern, name):
            return re.sub(f"^{pattern}", new.replace("#", r"\1"), name)
    return name


# --- A recurrent language model: words in, how likely each word comes next out --------------------


class RecurrentLanguageModel(nn.Module):
    """An embedding, LSTM layers of the same width, and a linear map back to the vocabulary.

    The parts have the names of github.com/pytorch/examples/word_language_model, whose weights fit.

    Args:
        vocabulary: number of words.
        width: of the embedding and of every layer.
        num_layers: of the LSTM.
        is_tied: whether the last map has the embedding's weight (Press & Wolf 2016,
            arXiv:1608.05859), which then counts once.

    Example:
        >>> model = RecurrentLanguageModel(100, width=8, num_layers=2, is_tied=True)
        >>> sum(weight.numel() for weight in model.parameters()) == 100 * 9 + 2 * 4 * 8 * 18
        True
    """

    def __init__(
        self, vocabulary: int, *, width: int = 200, num_layers: int = 2, is_tied: bool = False
    ) -> None:
        super().__init__()
        self.encoder = nn.Embedding(vocabulary, width)
        self.rnn = nn.LSTM(width, width, num_layers, batch_first=True)
        self.decoder = nn.Linear(width, vocabulary)
        if is_tied:
            self.decoder.weight = self.encoder.weight

    def forward(self, words: Tensor) -> Tensor:
        """Numbers (batch, words) to logits (batch, words, vocabulary) of the next one each."""
        states, _ = self.rnn(self.encoder(words))
        logits: Tensor = self.decoder(states)
        return logits


# --- Letters to phonemes: one GRU reads a word, another one writes how it is spoken ---------------


LETTERS = ("<pad>", "<unk>", "</s>", *"abcdefghijklmnopqrstuvwxyz")
_VOWELS = "AA AE AH AO AW AY EH ER EY IH IY OW OY UH UW"
_OTHERS = "UW B CH D DH F G HH JH K L M N NG P R S SH T TH V W Y Z ZH"
# The digit is the stress of a vowel; the trained model also knows UW without any.
PHONEMES = (
    *("<pad>", "<unk>", "<s>", "</s>"),
    *sorted([v + stress for v in _VOWELS.split() for stress in "012"] + _OTHERS.split()),
)
_PADDING, _UNKNOWN, _END_OF_WORD = range(3)
_START, _END = 2, 3
_NUMBERS = {letter: number for number, letter in enumerate(LETTERS)}


class LetterToPhoneme(nn.Module):
    """The last state of the reader is the first one of the writer.

    Args:
        width: of the embeddings and of both layers.
        num_steps: phonemes written for a word at most, with the sign that ends it.

    Example:
        >>> sum(weight.numel() for weight in LetterToPhoneme().parameters())
        834890
    """

    def __init__(self, *, width: int = 256, num_steps: int = 20) -> None:
        super().__init__()
        self.num_steps = num_steps
        self.letters = nn.Embedding(len(LETTERS), width)
        self.reader = nn.GRU(width, width, batch_first=True)
        self.phonemes = nn.Embedding(len(PHONEMES), width)
        self.writer = nn.GRU(width, width, batch_first=True)
        self.head = nn.Linear(width, len(PHONEMES))

    def forward(self, letters: Tensor, phonemes: Tensor | None = None) -> Tensor:
        """Logits (batch, steps, phonemes) of what comes next, for words as `spell` gives them.

        Each step sees the phoneme that was likeliest at the step before or, for training, the one
        of `phonemes`, (batch, steps).
        """
        state = self._read(letters)
        before = torch.full_like(letters[:, :1], _START)
        if phonemes is not None:
            states, _ = self.writer(self.phonemes(torch.cat([before, phonemes[:, :-1]], 1)), state)
            logits: Tensor = self.head(states)
            return logits
        steps = []
        for _ in range(self.num_steps):
            states, state = self.writer(self.phonemes(before), state)
            steps.append(self.head(states))
            before = steps[-1].argmax(dim=2)
        return torch.cat(steps, dim=1)

    def _read(self, letters: Tensor) -> Tensor:
        """The state after the last letter, (1, batch, width); what comes behind it is padding."""
        states, _ = self.reader(self.letters(letters))
        last = (letters != _PADDING).sum(1) - 1
        chosen = last[:, None, None].expand(-1, 1, states.shape[2])
        state: Tensor = states.gather(1, chosen).transpose(0, 1).contiguous()
        return state


def spell(words: Sequence[str]) -> Tensor:
    """Numbers of the letters, (words, longest), each word with its end, then padding.

    Example:
        >>> spell(["ab", "é"]).tolist()
        [[3, 4, 2], [1, 2, 0]]
    """
    rows = [
        torch.tensor([*(_NUMBERS.get(letter, _UNKNOWN) for letter in word), _END_OF_WORD])
        for word in words
    ]
    return nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=_PADDING)


def read_phonemes(logits: Tensor) -> list[tuple[str, ...]]:
    """The likeliest phonemes of each word, up to the sign that ends it.

    Example:
        >>> read_phonemes(nn.functional.one_hot(torch.tensor([[22, 3, 22]]), 74))
        [('B',)]
    """
    words = []
    for row in logits.argmax(dim=2).tolist():
        length = row.index(_END) if _END in row else len(row)
        words.append(tuple(PHONEMES[number] for number in row[:length]))
    return words


def from_g2p_en(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Weights of g2p_en's file under the names of `LetterToPhoneme`; other names stay."""
    names = {"enc_emb": "letters.weight", "dec_emb": "phonemes.weight"}
    names |= {"fc_w": "head.weight", "fc_b": "head.bias"}
    for theirs, ours in (("enc", "reader"), ("dec", "writer")):
        for side in ("ih", "hh"):
            names[f"{theirs}_w_{side}"] = f"{ours}.weight_{side}_l0"
            names[f"{theirs}_b_{side}"] = f"{ours}.bias_{side}_l0"
    return {names.get(name, name): tensor for name, tensor in tensors.items()}
