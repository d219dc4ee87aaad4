"""Sentences and their translations, padded, for models that read one and write the other.

    data = load_translation("multi30k", folder)                 # German to English
    def loss(model, batch):
        pair = data.train.parts(batch)                          # sources, inputs, targets, masks
        logits = model(pair)                                    # (batch, length, words)
        return nn.functional.cross_entropy(logits.flatten(0, 1), pair.targets.flatten())
    fit(model, loss, data.train.data, Recipe(...))

A sentence that is read is `words <eos>`. What a model writes is given as `<sos> words` and wanted
as `words <eos>`. All are filled up with `<pad>`, which has the number 0, and targets with -100,
which `cross_entropy` leaves out.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from rankscope.errors import DataError
from rankscope.lab.data.text_data import Vocabulary, read_sentence_pairs
from rankscope.networks.batches import Batch, TensorData
from rankscope.networks.datasets import RemoteFile, Source

PADDING, UNKNOWN, START, END = SPECIAL = ("<pad>", "<unk>", "<sos>", "<eos>")
PADDING_NUMBER, UNKNOWN_NUMBER, START_NUMBER, END_NUMBER = range(len(SPECIAL))
IGNORED = -100

WordPairs = Sequence[tuple[Sequence[str], Sequence[str]]]

_ADDRESS = "https://raw.githubusercontent.com/multi30k/dataset/master/data/task1/raw"
_MULTI30K = Source(
    "multi30k",
    "Get the raw sentences of task 1 from github.com/multi30k/dataset, and put train.de, train.en, "
    "val.*, test_2016_flickr.* (or .gz) there.",
    tuple(
        RemoteFile(f"{_ADDRESS}/{name}.gz", f"sha256:{checksum}")
        for name, checksum in (
            ("train.de", "726e39b2fa9eb9ffb6dc763fb35a179f80fae06ffc5d28b6ace5faa883de28a6"),
            ("train.en", "d79cfa999dd4c51d2cb42499b6796d5a882c3a8a961923c25a898c90f8bbd56f"),
            ("val.de", "f0cba2f995189cf5770f29a8a9a537a3ad3f51657ad873405082ff6863a5e75a"),
            ("val.en", "14f7d25ddd868909a9213e361768460edcacdd6ab9d1e77b92560dc10c10dc28"),
            (
                "test_2016_flickr.de",
                "9204244e408ccb38d2a55cfcd344df15005fc42a07a6e55ca6c52b6ababb8cc8",
            ),
            (
                "test_2016_flickr.en",
                "611d361c6334bc7246101d48097c13cf5c4413c5befc793cc629934359d532d9",
            ),
        )
    ),
)
_FILES = {"train": "train", "validation": "val", "test": "test_2016_flickr"}


@dataclass(frozen=True, eq=False)
class PairBatch:
    """Some pairs, filled up to the longest of them only.

    Args:
        sources: (batch, length) numbers of what is read.
        inputs: (batch, other length), what is written, without its last word.
        targets: (batch, other length), without its first; `IGNORED` where nothing is wanted.
    """

    sources: Tensor
    inputs: Tensor
    targets: Tensor


@dataclass(frozen=True, eq=False)
class PairedSentences:
    """Pairs of sentences as `fit` takes them.

    Args:
        data: what is read and what is written side by side as inputs, and the targets.
        source_length: how many of the inputs are read.
    """

    data: TensorData
    source_length: int

    @classmethod
    def of(cls, pairs: WordPairs, source: Vocabulary, target: Vocabulary) -> "PairedSentences":
        """Pairs of words as numbers; the vocabularies begin with `SPECIAL`.

        Raises:
            DataError: if there is no pair.
        """
        if not pairs:
            raise DataError("PairedSentences: wanted at least 1 pair of sentences, got 0.")
        sources = [source.encode([*read, END]) for read, _ in pairs]
        written = [target.encode([START, *write, END]) for _, write in pairs]
        left = pad_sequence(sources, batch_first=True, padding_value=PADDING_NUMBER)
        right = [sentence[:-1] for sentence in written]
        inputs = pad_sequence(right, batch_first=True, padding_value=PADDING_NUMBER)
        wanted = [sentence[1:] for sentence in written]
        targets = pad_sequence(wanted, batch_first=True, padding_value=IGNORED)
        return cls(TensorData(torch.cat([left, inputs], dim=1), targets), left.shape[1])

    def __len__(self) -> int:
        return len(self.data)

    def parts(self, batch: Batch) -> PairBatch:
        """What a batch of `data` holds."""
        assert batch.targets is not None, "pairs have targets"
        sources = batch.inputs[:, : self.source_length]
        inputs = batch.inputs[:, self.source_length :]
        longest = int((inputs != PADDING_NUMBER).sum(dim=1).max())
        return PairBatch(
            sources[:, : int((sources != PADDING_NUMBER).sum(dim=1).max())],
            inputs[:, :longest],
            batch.targets[:, :longest],
        )


@dataclass(frozen=True, eq=False)
class TranslationData:
    """Sentences in two languages.

    Args:
        name: as the command line says it.
        source_vocabulary: of what is read; begins with `SPECIAL`.
        target_vocabulary: of what is written; begins with `SPECIAL`.
        train: what is trained on.
        validation: for choices.
        test: only ever scored on.
        references: the words of the test sentences as people wrote them, for BLEU.
    """

    name: str
    source_vocabulary: Vocabulary
    target_vocabulary: Vocabulary
    train: PairedSentences
    validation: PairedSentences
    test: PairedSentences
    references: tuple[tuple[str, ...], ...]

    @classmethod
    def of(
        cls,
        name: str,
        train: WordPairs,
        validation: WordPairs,
        test: WordPairs,
        *,
        min_count: int = 2,
    ) -> "TranslationData":
        """Build from pairs of words; the vocabularies are those of `train`, without rarer words."""
        source, target = (
            Vocabulary.by_frequency(
                [pair[side] for pair in train], first=SPECIAL, min_count=min_count, unknown=UNKNOWN
            )
            for side in (0, 1)
        )
        return cls(
            name,
            source,
            target,
            PairedSentences.of(train, source, target),
            PairedSentences.of(validation, source, target),
            PairedSentences.of(test, source, target),
            tuple(tuple(write) for _, write in test),
        )


def load_translation(
    name: str,
    folder: Path | None = None,
    *,
    languages: tuple[str, str] = ("de", "en"),
    min_count: int = 2,
    max_words: int | None = None,
) -> TranslationData:
    """Sentence pairs by name: `multi30k`; its test set is test_2016_flickr.

    Args:
        name: of the data set.
        folder: the data folder; None for the one that RANKSCOPE_DATA names.
        languages: from which to which, as the files end.
        min_count: words that are rarer in the training sentences become `<unk>`.
        max_words: longer sentences are not trained on; validation and test keep all of theirs.

    Raises:
        DataError: if there is no such data set, its files are not there (the message says how to
            get them), or they are corrupt.
    """
    if name != "multi30k":
        raise DataError(f"There are no sentence pairs {name!r}; choose multi30k.")
    where = _MULTI30K.locate(folder)
    pairs = {part: _words_of(where, file, languages) for part, file in _FILES.items()}
    longest = max_words if max_words is not None else 2**62
    train = [pair for pair in pairs["train"] if max(map(len, pair)) <= longest]
    return TranslationData.of(name, train, pairs["validation"], pairs["test"], min_count=min_count)


def sentence_words(sentence: str) -> list[str]:
    """Words and punctuation of a sentence in small letters.

    Example:
        >>> sentence_words("A man's hat, blue.")
        ['a', 'man', "'", 's', 'hat', ',', 'blue', '.']
    """
    return re.findall(r"\w+|[^\w\s]", sentence.lower())


def _words_of(
    where: Path, file: str, languages: tuple[str, str]
) -> list[tuple[list[str], list[str]]]:
    first, second = (_present(where / f"{file}.{language}") for language in languages)
    return [
        (sentence_words(read), sentence_words(write))
        for read, write in read_sentence_pairs(first, second)
    ]


def _present(path: Path) -> Path:
    packed = path.with_name(f"{path.name}.gz")
    return packed if packed.is_file() and not path.is_file() else path
