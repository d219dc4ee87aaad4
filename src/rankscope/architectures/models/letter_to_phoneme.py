"""Letters to phonemes: one GRU reads a word, another one writes how it is spoken.

The public weights are those of g2p_en 2.0 (Park & Kim 2019, github.com/Kyubyong/g2p, Apache-2.0).
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

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
    found = []
    for row in logits.argmax(dim=2).tolist():
        length = row.index(_END) if _END in row else len(row)
        found.append(tuple(PHONEMES[number] for number in row[:length]))
    return found


def from_g2p_en(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Weights of g2p_en's file under the names of `LetterToPhoneme`; other names stay."""
    names = {"enc_emb": "letters.weight", "dec_emb": "phonemes.weight"}
    names |= {"fc_w": "head.weight", "fc_b": "head.bias"}
    for theirs, ours in (("enc", "reader"), ("dec", "writer")):
        for side in ("ih", "hh"):
            names[f"{theirs}_w_{side}"] = f"{ours}.weight_{side}_l0"
            names[f"{theirs}_b_{side}"] = f"{ours}.bias_{side}_l0"
    return {names.get(name, name): tensor for name, tensor in tensors.items()}
