"""Plain text as numbers: word by word as WikiText counts, or character by character."""

import lzma
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from rankscope.errors import DataError

END_OF_LINE = "<eos>"


@dataclass(frozen=True)
class Vocabulary:
    """The symbols of a text; the number of a symbol is its place.

    Example:
        >>> vocabulary = Vocabulary.of(["b", "a", "b"])
        >>> vocabulary.symbols, vocabulary.encode(["a", "b"]).tolist()
        (('b', 'a'), [1, 0])
    """

    symbols: tuple[str, ...]

    @classmethod
    def of(cls, *texts: Sequence[str]) -> "Vocabulary":
        """Every symbol of the texts, in the order in which they first occur."""
        return cls(tuple(dict.fromkeys(symbol for text in texts for symbol in text)))

    def encode(self, text: Sequence[str]) -> Tensor:
        """The numbers of the symbols.

        Raises:
            DataError: if one of them is not in the vocabulary.
        """
        numbers = {symbol: number for number, symbol in enumerate(self.symbols)}
        try:
            return torch.tensor([numbers[symbol] for symbol in text])
        except KeyError as error:
            raise DataError(
                f"{error.args[0]!r} is none of the {len(numbers):,} symbols of the vocabulary."
            ) from error


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
    """The content of a UTF-8 file, plain or packed as `.xz`, its line ends untouched.

    Raises:
        DataError: if the file is not readable or not UTF-8.
    """
    try:
        content = path.read_bytes()
        return (lzma.decompress(content) if path.suffix == ".xz" else content).decode("utf-8")
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}.") from error
    except lzma.LZMAError as error:
        raise DataError(f"{path} cannot be unpacked: {error}.") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is no UTF-8 text: byte {error.start:,} is none of it.") from error
