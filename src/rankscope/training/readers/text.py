"""Plain text as numbers: word by word as WikiText counts, or character by character."""

import gzip
import lzma
import zlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from rankscope.errors import DataError

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
        found = numbers.flatten().tolist()
        for number in found:
            if not 0 <= number < len(self):
                raise DataError(
                    f"{number} is the number of none of the {len(self):,} symbols of the "
                    f"vocabulary."
                )
        return [self.symbols[number] for number in found]


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
