"""One input: a command with the files it finds, kept as a small JSON file in the corpus."""

import base64
import json
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Case:
    """A command line and the files in the folder where it runs.

    Args:
        name: where it comes from: `SEED:NUMBER`, or the name of a file of the corpus.
        words: of the command, without `rankscope`.
        files: contents by path.
    """

    name: str
    words: tuple[str, ...]
    files: dict[str, bytes]

    def to_json(self) -> str:
        """The text of a file of the corpus."""
        files = {name: base64.b64encode(data).decode() for name, data in self.files.items()}
        return json.dumps({"words": self.words, "files": files}, indent=1) + "\n"

    @classmethod
    def from_json(cls, name: str, text: str) -> "Case":
        """Read a file of the corpus."""
        document = json.loads(text)
        files = {path: base64.b64decode(data) for path, data in document["files"].items()}
        return cls(name, tuple(document["words"]), files)


CORPUS = Path(__file__).parent / "corpus"


def read_corpus() -> list[Case]:
    """Every case that once went wrong, or that stands for a kind of attack."""
    return [Case.from_json(path.stem, path.read_text()) for path in sorted(CORPUS.glob("*.json"))]
