"""Texts for language models: numbers in a row, cut into windows that `fit` is given.

    text = load_text("tinyshakespeare", folder)  # or "wikitext-2", "embedded"
    train, validation = windows(text.train, 64), windows(text.validation, 64)
    model = ...  # numbers (batch, 64) to logits (batch, 64, len(text.vocabulary))
    fit(model, next_symbol_loss, train, Recipe(...))
    mean_loss(model, validation)

Losses are in nats for each symbol, whether it is a word or a character.
"""

import csv
import gzip
import io
import lzma
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor, nn

from rankscope.errors import DataError
from rankscope.networks.batches import Batch, TensorData
from rankscope.networks.datasets import RemoteFile, Source
from rankscope.networks.published_weights import embedded_weights

# Plain text as numbers: word by word as WikiText counts, or character by character.


END_OF_LINE = "<eos>"


@dataclass(frozen=True)
class Vocabulary:
    """The symbols of a text; the number of a symbol is its place.

    Args:
        symbols: all different.
        unknown: the symbol that stands for all others; None if others are refused.

    Example:
        >>> vocabulary = Vocabulary.of(["b", "a", "b"])
        >>> vocabulary.symbols, vocabulary.encode(["a", "b"]).tolist()
        (('b', 'a'), [1, 0])

    Raises:
        DataError: if a symbol occurs twice, or the unknown one is none of them.
    """

    symbols: tuple[str, ...]
    unknown: str | None = None

    def __post_init__(self) -> None:
        if len(self.numbers) < len(self.symbols):
            raise DataError(
                f"Vocabulary: wanted different symbols, got {len(self.symbols):,} of which only "
                f"{len(self.numbers):,} differ."
            )
        if self.unknown is not None and self.unknown not in self.numbers:
            raise DataError(
                f"Vocabulary: {self.unknown!r} is to stand for unknown symbols, but is none of "
                f"the {len(self.symbols):,}."
            )

    @classmethod
    def of(cls, *texts: Sequence[str]) -> "Vocabulary":
        """Every symbol of the texts, in the order in which they first occur."""
        return cls(tuple(dict.fromkeys(symbol for text in texts for symbol in text)))

    @classmethod
    def by_frequency(
        cls,
        texts: Iterable[Sequence[str]],
        *,
        first: Sequence[str] = (),
        max_symbols: int | None = None,
        min_count: int = 1,
        unknown: str | None = None,
    ) -> "Vocabulary":
        """The symbols of the texts, the most frequent first; equally frequent ones as they occur.

        Args:
            texts: sequences of symbols: strings of characters, or lists of words.
            first: symbols that get the first numbers, whether they occur or not.
            max_symbols: how many there are at most, those of `first` included.
            min_count: rarer symbols are left out.
            unknown: stands for what was left out; put it into `first` unless it occurs.

        Example:
            >>> words = ["a", "c", "b", "b", "c", "c"]
            >>> Vocabulary.by_frequency([words], first=["<unk>"], min_count=2).symbols
            ('<unk>', 'c', 'b')
        """
        counts = Counter(symbol for text in texts for symbol in text)
        frequent = (symbol for symbol, count in counts.most_common() if count >= min_count)
        return cls(tuple(dict.fromkeys((*first, *frequent)))[:max_symbols], unknown)

    @cached_property
    def numbers(self) -> dict[str, int]:
        """The number of each symbol."""
        return {symbol: number for number, symbol in enumerate(self.symbols)}

    def __len__(self) -> int:
        return len(self.symbols)

    def encode(self, text: Sequence[str]) -> Tensor:
        """The numbers of the symbols.

        Raises:
            DataError: if one of them is not in the vocabulary, and none stands for unknown ones.
        """
        if self.unknown is not None:
            other = self.numbers[self.unknown]
            numbers = [self.numbers.get(symbol, other) for symbol in text]
            return torch.tensor(numbers, dtype=torch.long)
        try:
            return torch.tensor([self.numbers[symbol] for symbol in text], dtype=torch.long)
        except KeyError as error:
            raise DataError(
                f"{error.args[0]!r} is none of the {len(self):,} symbols of the vocabulary."
            ) from error

    def decode(self, numbers: Tensor) -> list[str]:
        """The symbols of the numbers.

        Raises:
            DataError: if there is no symbol of a number.
        """
        result = numbers.flatten().tolist()
        for number in result:
            if not 0 <= number < len(self):
                raise DataError(
                    f"{number} is the number of none of the {len(self):,} symbols of the "
                    f"vocabulary."
                )
        return [self.symbols[number] for number in result]


def words(text: str) -> list[str]:
    r"""Words between blanks, and `<eos>` for every end of a line.

    Example:
        >>> words("one two\nthree\n")
        ['one', 'two', '<eos>', 'three', '<eos>']
    """
    # Only a newline ends a line: other separators occur inside WikiText's lines.
    lines = text.removesuffix("\n").split("\n") if text else []
    return [word for line in lines for word in (*line.split(), END_OF_LINE)]


def read_text(path: Path) -> str:
    """The content of a UTF-8 file, plain or packed as `.gz` or `.xz`, its line ends untouched.

    Raises:
        DataError: if the file is not readable or not UTF-8.
    """
    try:
        return _UNPACK.get(path.suffix, bytes)(path.read_bytes()).decode("utf-8")
    except (lzma.LZMAError, gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"{path} cannot be unpacked: {error}.") from error
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is no UTF-8 text: byte {error.start:,} is none of it.") from error


_UNPACK = {".gz": gzip.decompress, ".xz": lzma.decompress}


# Pairs of sentences: two files line by line (Multi30k), or a table with scores (STS-B).


def read_sentence_pairs(first: Path, second: Path) -> list[tuple[str, str]]:
    """Line by line, a sentence and its translation.

    Raises:
        DataError: if a file is not readable, or the numbers of lines differ.
    """
    # Only a newline ends a line: sentences may hold other separators.
    left, right = (read_text(path).removesuffix("\n").split("\n") for path in (first, second))
    if len(left) != len(right):
        raise DataError(f"{first} has {len(left):,} lines, but {second} has {len(right):,}.")
    return list(zip(left, right, strict=True))


def read_scored_pairs(path: Path) -> list[tuple[str, str, float]]:
    """Two sentences and how alike they are, from rows of a CSV file without a header.

    Raises:
        DataError: if the file is not readable, or a row has other fields.
    """
    results = []
    for number, row in enumerate(csv.reader(io.StringIO(read_text(path), newline="")), start=1):
        try:
            one, other, score = row
            results.append((one, other, float(score)))
        except ValueError as error:
            raise DataError(
                f"{path}, row {number:,}: wanted two sentences and a score, got {len(row)} fields "
                f"ending in {row[-1:]}."
            ) from error
    return results


UNKNOWN = "<unk>"
_PARTS = (0.90, 0.95)  # of a single text: before these for training, for validation
_EXAMPLES = "https://raw.githubusercontent.com/pytorch/examples/main/word_language_model/data"
_WIKITEXT = Source(
    "wikitext-2",
    "Get WikiText-2 (not the raw version), for example from github.com/pytorch/examples, folder "
    "word_language_model/data, and put its train.txt, valid.txt and test.txt there.",
    tuple(
        RemoteFile(f"{_EXAMPLES}/wikitext-2/{name}.txt", f"sha256:{checksum}")
        for name, checksum in (
            ("train", "9e9fa1ad55b1c2c95b08e37dd8e653f638fac2c6de904b79e813611eefbc985f"),
            ("valid", "f0737ed31fc1329026e95cb8b98e19c2a182c39c240ab909dc31abf2f8af58e8"),
            ("test", "d790b833ef8cf03a90db7bf1271b7520b83c45ce07ba3c1a9699df81e239eca0"),
        )
    ),
)
_SHAKESPEARE = Source(
    "tinyshakespeare",
    "Get input.txt from github.com/karpathy/char-rnn, folder data/tinyshakespeare, and put it "
    "there.",
    (
        RemoteFile(
            "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/"
            "input.txt",
            "sha256:86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
        ),
    ),
)


@dataclass(frozen=True, eq=False)
class TextData:
    """A text as numbers, in three parts.

    Args:
        name: as the command line says it.
        vocabulary: what the numbers mean; its length is the number of classes.
        train: (count,) numbers, what is trained on.
        validation: (count,), for choices.
        test: (count,), only ever scored on.
    """

    name: str
    vocabulary: Vocabulary
    train: Tensor
    validation: Tensor
    test: Tensor


def load_text(name: str, folder: Path | None = None, *, max_symbols: int | None = None) -> TextData:
    """A text by name: `wikitext-2` (words), `tinyshakespeare` or `embedded` (characters).

    The vocabulary is that of the whole text, the most frequent symbol first. `tinyshakespeare` is
    cut at 90 % and 95 %; `embedded` is our own documentation, and comes with the package.

    Args:
        name: of the text.
        folder: the data folder; None for the one that RANKSCOPE_DATA names.
        max_symbols: only the most frequent ones; the others become `<unk>`, which is one of them.

    Raises:
        DataError: if there is no such text, its files are not there (the message says how to get
            them), or they are corrupt.
    """
    if name not in _READERS:
        raise DataError(f"There is no text {name!r}; choose one of {', '.join(_READERS)}.")
    train, validation, test = parts = _READERS[name](folder)
    if max_symbols is None:
        vocabulary = Vocabulary.by_frequency(parts)
    else:
        vocabulary = Vocabulary.by_frequency(
            parts, first=(UNKNOWN,), max_symbols=max_symbols, unknown=UNKNOWN
        )
    encode = vocabulary.encode
    return TextData(name, vocabulary, encode(train), encode(validation), encode(test))


def windows(text: Tensor, length: int) -> TensorData:
    """A text cut into windows, each with the symbols that follow: every one is wanted once.

    What is left at the end, less than a window, is dropped.

    Args:
        text: (count,) numbers.
        length: of the windows.

    Example:
        >>> data = windows(torch.arange(8), 3)
        >>> data.inputs.tolist(), data.targets.tolist()
        ([[0, 1, 2], [3, 4, 5]], [[1, 2, 3], [4, 5, 6]])

    Raises:
        DataError: if the text is shorter than one window and the symbol after it.
    """
    count = (len(text) - 1) // length if length > 0 else 0
    if count < 1:
        raise DataError(
            f"windows: a text of {len(text):,} symbols has no window of {length:,} and one more."
        )
    inputs = text[: count * length].reshape(count, length)
    return TensorData(inputs, text[1 : count * length + 1].reshape(count, length))


def next_symbol_loss(model: nn.Module, batch: Batch) -> Tensor:
    """The mean cross entropy of logits (batch, length, symbols) against (batch, length) targets."""
    logits: Tensor = model(batch.inputs)
    assert batch.targets is not None, "windows have targets"
    return nn.functional.cross_entropy(logits.flatten(0, 1), batch.targets.flatten())


def mean_loss(model: nn.Module, data: TensorData, *, batch_size: int = 64) -> float:
    """The loss over all windows, in nats for each symbol; the exponential is the perplexity."""
    with torch.no_grad():
        sums = [
            float(next_symbol_loss(model, batch)) * batch.num_samples
            for batch in data.batches(batch_size)
        ]
    return sum(sums) / len(data)


_Parts = tuple[str, str, str] | tuple[list[str], list[str], list[str]]


def _wikitext(folder: Path | None) -> _Parts:
    where = _WIKITEXT.locate(folder)
    train, validation, test = (
        words(read_text(where / f"{part}.txt")) for part in ("train", "valid", "test")
    )
    return train, validation, test


def _shakespeare(folder: Path | None) -> _Parts:
    text = read_text(_SHAKESPEARE.locate(folder) / "input.txt")
    first, second = (int(share * len(text)) for share in _PARTS)
    return text[:first], text[first:second], text[second:]


def _embedded_text(folder: Path | None) -> _Parts:
    del folder  # it comes with the package
    where = embedded_weights("transformer").parent
    text = read_text(where / "training.txt")
    first = int(_PARTS[0] * len(text))
    return text[:first], text[first:], read_text(where / "held_out.txt")


_READERS: dict[str, Callable[[Path | None], _Parts]] = {
    "wikitext-2": _wikitext,
    "tinyshakespeare": _shakespeare,
    "embedded": _embedded_text,
}
