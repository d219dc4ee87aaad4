"""The campaign of damaged inputs: workers are fed, and replaced when they hang or die."""

import json
import os
import select
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from fuzz.case import Case, read_corpus
from fuzz.seeds import make_seeds

FOUND = Path(__file__).parent / "found"  # not kept: what is mended goes into the corpus
_PATIENCE = 180.0  # seconds of wall time without an answer, before a worker counts as hung


@dataclass
class Campaign:
    """How many inputs were judged, and what went wrong.

    Args:
        seed: of all cases.
        num_inputs: that were judged.
        complaints: by the name of the case.
    """

    seed: int
    num_inputs: int = 0
    complaints: dict[str, str] = field(default_factory=dict)

    def run(self, seconds: float, most: int, start: int = 0) -> None:
        """First the corpus, then new cases until time or numbers are used up."""
        until = time.monotonic() + seconds
        with tempfile.TemporaryDirectory(prefix="rankscope-fuzz-seeds-") as folder:
            make_seeds(Path(folder))
            self._run(until, range(start, start + most))

    def _run(self, until: float, numbers: range) -> None:
        self._worker = _Worker(self.seed)
        try:
            for case in read_corpus():
                self._judge(case.name, json.dumps(case.to_json()))
            for number in numbers:
                if time.monotonic() > until:
                    break
                self._judge(f"{self.seed}:{number}", str(number))
        finally:
            self._worker.stop()

    def _judge(self, name: str, line: str) -> None:
        complaint, text = self._worker.ask(line)
        self.num_inputs += 1
        if complaint:
            self.complaints[name] = complaint
            words = "?"
            if text:
                FOUND.mkdir(exist_ok=True)
                (FOUND / f"{name.replace(':', '-')}.json").write_text(text)
                words = " ".join(map(ascii, Case.from_json(name, text).words))
            print(f"{name}: rankscope {words[:300]}\n    {complaint[:1200]}", flush=True)
        if not self._worker.is_alive:
            self._worker = _Worker(self.seed)


class _Worker:
    def __init__(self, seed: int) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed when the worker stops
        self._process = subprocess.Popen(
            [sys.executable, "-m", "fuzz.worker", str(seed)],
            # Threads of the page must not take address space, which is what is limited.
            env={**os.environ, "MALLOC_ARENA_MAX": "2"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        self.is_alive = True

    def ask(self, line: str) -> tuple[str, str]:
        """What is wrong with a case, and its text; nothing if nothing is."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(f"{line}\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            return self._died()
        if not select.select([self._process.stdout], [], [], _PATIENCE)[0]:
            self.stop()
            return f"no answer in {_PATIENCE:g} s", ""
        answer = self._process.stdout.readline()
        if not answer:
            return self._died()
        complaint, text = json.loads(answer)
        return complaint, text

    def _died(self) -> tuple[str, str]:
        self.is_alive = False
        code = self._process.wait()
        self._errors.seek(0)
        said = self._errors.read().decode("utf-8", "replace")[-600:]
        return f"the process died with {code}: {said}", ""

    def stop(self) -> None:
        self.is_alive = False
        self._process.kill()
        self._process.wait()
        self._errors.close()
