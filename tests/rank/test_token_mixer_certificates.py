"""Certificates of token mixers and message passing, checked without the fast kernels."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from rankscope.cli.main import main
from rankscope.rank import (
    MessagePassing,
    Partition,
    PolynomialMixer,
    PolynomialNetwork,
    PolynomialTransformer,
    ProductNetwork,
    Recurrence,
    certify_rank,
    measure_rank,
    write_certificate,
)

NETWORKS: list[PolynomialNetwork] = [
    PolynomialTransformer(
        depth=2, width=2, num_tokens=4, is_causal=True, has_rotary=True, has_residual=True
    ),
    PolynomialTransformer(depth=1, width=2, heads=2, num_kv_heads=1, num_tokens=4, gated=2),
    Recurrence(kind="selective", depth=1, width=2, num_tokens=4),
    Recurrence(kind="delta", depth=1, width=2, num_tokens=4, has_input_rate=True),
    Recurrence(kind="decay", depth=2, width=2, num_tokens=4),
    Recurrence(kind="dense", depth=2, width=2, num_tokens=4),
    Recurrence(kind="diagonal", depth=1, width=2, num_tokens=4),
    PolynomialTransformer(
        depth=1, width=4, heads=2, latent=2, query_latent=2, has_positions=True, num_tokens=4
    ),
    PolynomialMixer(num_tokens=4, input_size=1, width=2, token_hidden=2, channel_hidden=2, depth=1),
    ProductNetwork(num_inputs=4, degree=2, depth=2),
    MessagePassing(edges=((0, 1), (1, 2), (2, 3)), depth=3, width=2, vertex=2),
    MessagePassing(edges=((0, 1), (1, 2), (0, 2)), depth=2, width=2, num_vertices=4),
]
# Verifies, and then says whether the fast evaluation was ever loaded.
VERIFY = """
import sys
from rankscope.rank.certificate_file import read_certificate
from rankscope.rank.verification import verify
for name in sys.argv[1:]:
    verdict = verify(read_certificate(name))
    print(verdict.is_proved, verdict.lower)
print("rankscope.rank.networks.pair_programs" in sys.modules)
"""


@pytest.mark.slow
def test_certificates_verify_in_a_process_that_never_loads_the_fast_evaluation(
    tmp_path: Path,
) -> None:
    expected, paths = [], []
    for number, network in enumerate(NETWORKS):
        partition = Partition.interleaved(4)
        measured = measure_rank(network, partition)
        path = tmp_path / f"{number}.json"
        write_certificate(path, certify_rank(network, partition, measured))
        expected.append(f"True {measured.lower}")
        paths.append(str(path))
    done = subprocess.run(
        [sys.executable, "-c", VERIFY, *paths],
        check=True, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.stdout.splitlines() == [*expected, "False"]


@pytest.mark.parametrize(
    ("command", "lower"),
    [
        ("polynomial-transformer --depth 2 --width 2 --heads 1 --tokens 4", 18),
        ("polynomial-transformer --depth 2 --width 2 --heads 1 --tokens 4 --causal", 37),
        ("polynomial-transformer --depth 2 --width 4 --heads 4 --kv-heads 1 --tokens 8", 8),
        ("recurrence --kind dense --depth 2 --width 2 --state 2 --tokens 4", 14),
        ("recurrence --kind dense --depth 2 --width 2 --tokens 4 --partition start-end", 9),
        ("recurrence --kind delta --depth 1 --width 2 --state 2 --tokens 4", 7),
        ("recurrence --kind delta --depth 1 --width 2 --tokens 4 --partition start-end", 3),
    ],
)
def test_the_command_measures_and_bounds(
    capsys: pytest.CaptureFixture[str], command: str, lower: int
) -> None:
    assert main(["rank", *command.split(), "--json"]) == 0
    measured = json.loads(capsys.readouterr().out)
    assert measured["lower"] == lower
    assert main(["bounds", *command.split(), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["count"] >= lower


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("polynomial-transformer --depth 1 --width 4 --heads 4 --kv-heads 3", "do not divide 4"),
        ("polynomial-transformer --depth 1 --width 4 --latent 5", "latent 5 is wider"),
        ("polynomial-transformer --depth 1 --width 4 --output-position 8", "must lie in 0..7"),
        ("polynomial-transformer --depth 1 --width 3 --rotary", "must be even, got 3"),
        ("recurrence --kind linear --depth 1 --width 2", "--kind takes one of decay, diagonal"),
        ("recurrence --depth 1 --width 2", "recurrence needs --kind"),
        ("polynomial-transformer --depth 3 --width 4 --causal", "is the largest that fits"),
        ("polynomial-transformer --depth 3 --width 4 --causal", "hours of one core"),
    ],
)
def test_bad_requests_are_one_line(
    capsys: pytest.CaptureFixture[str], command: str, message: str
) -> None:
    assert main(["rank", *command.split()]) == 2
    captured = capsys.readouterr()
    assert message in captured.err.replace("\n", " ")
