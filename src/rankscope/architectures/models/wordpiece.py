"""Sentences as numbers of word pieces, by the public tokenizer file of an encoder."""

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from rankscope.architectures.models.encoder import PADDING
from rankscope.errors import MissingExtraError, ModelFileError


class WordPieces:
    """A `tokenizer.json` as Hugging Face writes it.

    Args:
        path: of the file.
        max_tokens: longer sentences are cut off; sentence-transformers cuts MiniLM's at 256.

    Raises:
        MissingExtraError: if the package `tokenizers` is not installed.
        ModelFileError: if the file is missing or is no tokenizer.
    """

    def __init__(self, path: Path, *, max_tokens: int = 256) -> None:
        try:
            from tokenizers import Tokenizer
        except ImportError as error:
            raise MissingExtraError(
                what="Reading sentences as word pieces", package="tokenizers", extra="text"
            ) from error
        try:
            self._tokenizer = Tokenizer.from_str(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise ModelFileError(
                f"WordPieces: cannot read {str(path)!r}: {error.strerror}; it is published beside "
                "the weights."
            ) from error
        # The package raises nothing more specific for a file it cannot understand.
        except Exception as error:
            raise ModelFileError(f"WordPieces: {str(path)!r} is no tokenizer: {error}.") from error
        self._tokenizer.enable_truncation(max_tokens)
        self._tokenizer.enable_padding(pad_id=PADDING)

    def __call__(self, sentences: Sequence[str]) -> Tensor:
        """Numbers (sentences, tokens of the longest), with padding behind shorter ones."""
        return torch.tensor([row.ids for row in self._tokenizer.encode_batch(list(sentences))])
