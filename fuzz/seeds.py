"""Sound files that commands write, to be damaged: made once for a campaign."""

import os
import subprocess
import sys
from pathlib import Path

START = "import sys; from rankscope.cli.entry import main; sys.exit(main())"
_COMMANDS = (
    "rank shallow --order 4 --size 2 --channels 2 --certificate shallow.json",
    "rank tensor-train --order 4 --size 2 --bond 2 --certificate train.json",
    "compress digits --keep 0.5 -o compressed",
)
CERTIFICATES = ("shallow.json", "train.json")
ENVIRONMENT = "RANKSCOPE_FUZZ_SEEDS"


def make_seeds(folder: Path) -> None:
    """Run the commands whose files are damaged; workers find them by the environment."""
    for command in _COMMANDS:
        subprocess.run(
            [sys.executable, "-c", START, *command.split()],
            cwd=folder,
            check=True,
            stdout=subprocess.DEVNULL,
        )
    os.environ[ENVIRONMENT] = str(folder)


def seed(name: str) -> bytes:
    """One of the files."""
    return (Path(os.environ[ENVIRONMENT]) / name).read_bytes()
