"""Entanglement of data: Gram matrices against the tensor itself, orders, files, commands."""

import itertools
import json
import math
import struct
from pathlib import Path

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.cli.main import main
from rankscope.errors import BudgetError, DataError
from rankscope.networks import by_squares, read_table
from rankscope.rank import (
    DataTable,
    Partition,
    canonical_splits,
    local_order,
    matricize,
    scaled_features,
    split_entropy,
)


def data_tensor(table: DataTable) -> numpy.ndarray:
    """The tensor of 2^N entries, and a last leg for more than two classes."""
    scaled, labels = scaled_features(table.features), table.labels
    total: numpy.ndarray = numpy.zeros(())
    for place, row in enumerate(scaled):
        term: numpy.ndarray = numpy.ones(())
        for value in row:
            angle = math.pi / 2 * value
            term = numpy.multiply.outer(term, [math.cos(angle), math.sin(angle)])
        if labels is not None:
            classes = numpy.unique(labels)
            one_hot = (classes == labels[place]).astype(float)
            leg = one_hot if len(classes) != 2 else numpy.array([one_hot[1] - one_hot[0]])
            term = numpy.multiply.outer(term, leg)
        else:
            term = term[..., None]
        total = total + term
    return numpy.asarray(total)


def entropy_of(matrix: numpy.ndarray) -> float:
    squared = numpy.square(numpy.linalg.svd(matrix, compute_uv=False))
    shares = squared[squared > 0] / squared.sum()
    return float(-(shares * numpy.log(shares)).sum())


@st.composite
def tables(draw: st.DrawFn) -> DataTable:
    generator = numpy.random.default_rng(draw(st.integers(0, 999)))
    count, size = draw(st.integers(3, 12)), draw(st.integers(2, 5))
    classes = draw(st.sampled_from((0, 2, 3)))
    labels = numpy.arange(count) % classes if classes else None
    return DataTable(generator.normal(size=(count, size)), labels)


@settings(deadline=None, max_examples=40)
@given(table=tables(), data=st.data())
def test_gram_matrices_give_the_entropy_of_the_tensor(
    table: DataTable, data: st.DataObject
) -> None:
    size = table.features.shape[1]
    left = data.draw(st.sets(st.integers(0, size - 1), min_size=1, max_size=size - 1))
    tensor = data_tensor(table)
    partition = Partition.of(sorted(left), order=tensor.ndim)
    expected = entropy_of(matricize(tensor, partition))
    assert split_entropy(table, sorted(left)) == pytest.approx(expected, abs=1e-7)


@settings(deadline=None, max_examples=20)
@given(table=tables())
def test_canonical_splits_are_the_blocks_of_recursive_halving(table: DataTable) -> None:
    size = table.features.shape[1]
    splits = canonical_splits(table)
    sides = [frozenset(range(one.start, one.stop)) for one in splits]
    both = [{side, frozenset(range(size)) - side} for side in sides]
    assert all(first != second for first, second in itertools.combinations(both, 2))
    assert {frozenset([place]) for place in range(size)} <= set().union(*both) or size == 2
    for one in splits:
        expected = split_entropy(table, range(one.start, one.stop))
        assert one.entropy == pytest.approx(expected, abs=1e-9)
        assert one.entropy <= one.most + 1e-9
        assert one.effective_rank == math.exp(one.entropy)


def test_copies_of_one_feature_are_entangled_and_constants_are_not() -> None:
    coin = numpy.array([[0.0], [1.0]])
    assert split_entropy(DataTable(numpy.hstack([coin, coin])), [0]) == pytest.approx(math.log(2))
    constant = numpy.hstack([coin, numpy.ones_like(coin)])
    assert split_entropy(DataTable(constant), [0]) == pytest.approx(0)


@settings(deadline=None, max_examples=20)
@given(pairs=st.integers(2, 8), seed=st.integers(0, 99))
def test_reordering_puts_copies_together_and_lowers_the_entropy(pairs: int, seed: int) -> None:
    generator = numpy.random.default_rng(seed)
    plain = generator.normal(size=(60, pairs))
    doubled = numpy.hstack([plain, plain])
    table = DataTable(doubled[:, generator.permutation(2 * pairs)])
    order = local_order(table.features)
    assert sorted(order) == list(range(2 * pairs))
    if pairs & (pairs - 1) == 0:  # halves of halves end in pairs
        after = table.reordered(order)
        for one in canonical_splits(after):
            if one.stop - one.start == 2:
                first, second = after.features[:, one.start : one.stop].T
                assert numpy.array_equal(first, second)
        before = [one.entropy for one in canonical_splits(table)]
        assert sum(one.entropy for one in canonical_splits(after)) <= sum(before) + 1e-9


def test_pixels_stand_by_squares() -> None:
    order = by_squares(numpy.arange(64).reshape(1, 8, 8))[0].astype(int)
    colours_first = numpy.arange(3 * 64).reshape(1, 3, 8, 8)
    assert by_squares(colours_first)[0, ::3].astype(int).tolist() == order.tolist()
    for size, side in ((16, 4), (4, 2)):
        for start in range(0, 64, size):
            rows, columns = numpy.divmod(order[start : start + size], 8)
            assert numpy.ptp(rows) == numpy.ptp(columns) == side - 1


# --- Files ----------------------------------------------------------------------------------------


def test_every_kind_of_file_gives_the_same_table(tmp_path: Path) -> None:
    images = numpy.random.default_rng(0).integers(0, 256, (6, 2, 4)).astype(numpy.uint8)
    labels = numpy.array([0, 1, 2, 0, 1, 2])
    flat = by_squares(images)
    numpy.save(tmp_path / "a.npy", images)
    numpy.savez(tmp_path / "a.npz", x=images, y=labels)
    numpy.save(tmp_path / "b.npy", numpy.hstack([flat, labels[:, None]]))
    rows = [",".join(map(str, [*row, label])) for row, label in zip(flat, labels, strict=True)]
    header = ",".join([*(f"p{n}" for n in range(8)), "digit"])
    (tmp_path / "a.csv").write_text("\n".join([header, *rows]))
    for name, content, sizes in (
        ("t-images-idx3-ubyte", images, (6, 2, 4)),
        ("t-labels-idx1-ubyte", labels.astype(numpy.uint8), (6,)),
    ):
        head = bytes((0, 0, 8, len(sizes))) + struct.pack(f">{len(sizes)}I", *sizes)
        (tmp_path / name).write_bytes(head + content.tobytes())
    read = {
        "a.npy": read_table(tmp_path / "a.npy"),
        "a.npz": read_table(tmp_path / "a.npz"),
        "b.npy": read_table(tmp_path / "b.npy", label="-1"),
        "a.csv": read_table(tmp_path / "a.csv", label="digit"),
        "idx": read_table(tmp_path / "t-images-idx3-ubyte"),
    }
    for name, table in read.items():
        assert numpy.array_equal(table.features, flat), name
        assert (table.labels is None) == (name == "a.npy")
        if table.labels is not None:
            assert numpy.array_equal(table.labels, labels), name


def test_an_array_without_samples_is_refused(tmp_path: Path) -> None:
    numpy.save(tmp_path / "a.npy", numpy.ones((0, 1, 8, 8)))
    with pytest.raises(DataError, match=r"samples with features, got shape \(0, 1, 8, 8\)"):
        read_table(tmp_path / "a.npy")


def test_a_cifar_batch_is_read(tmp_path: Path) -> None:
    record = bytes([3]) + bytes(range(256)) * 12
    (tmp_path / "batch.bin").write_bytes(record * 2)
    table = read_table(tmp_path / "batch.bin")
    assert table.features.shape == (2, 3072)
    assert table.labels is not None
    assert table.labels.tolist() == [3, 3]


def test_the_command_prints_and_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    generator = numpy.random.default_rng(1)
    plain = generator.normal(size=(50, 4))
    mixed = numpy.hstack([plain, plain])[:, [0, 1, 2, 3, 7, 4, 6, 5]]
    numpy.savez(tmp_path / "x.npz", features=mixed, labels=numpy.arange(50) % 2)
    output = tmp_path / "out.npz"
    assert main(["entanglement", str(tmp_path / "x.npz"), "-o", str(output), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["features"] == 8
    assert document["classes"] == 2
    assert document["mean_entropy"][1]["1"] <= document["mean_entropy"][0]["1"]
    with numpy.load(output) as written:
        assert written["order"].tolist() == document["order"]
        assert numpy.array_equal(written["features"], mixed[:, document["order"]])
    again = read_table(output)
    assert again.labels is not None
    assert main(["entanglement", str(tmp_path / "x.npz")]) == 0
    assert "blocks of" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "text", "options", "message"),
    [
        ("a.csv", "1,2\n3,nan\n", [], "1 of 4 features are not finite, the first in sample 1"),
        ("a.csv", "1,2\n3,\n", [], "1 of 4 features are not finite"),
        ("a.csv", "1,2\n3\n", [], "row 2: 1 cells, but the rows before have 2"),
        ("a.csv", "a,b\n1,x\n", [], "row 1, column 2: wanted a number, got 'x'"),
        ("a.csv", "a,b\n1,2\n3,4\n", ["--label", "c"], "no column 'c'; its columns are a, b"),
        ("a.csv", "1,2\n3,4\n", ["--label", "2"], "there are 2 columns, got 2"),
        ("a.csv", "1,2\n", [], "at least 2 samples with 2 features, got shape (1, 2)"),
        ("a.csv", "", [], "it is empty (0 bytes)"),
        ("a.txt", "1 2\n", [], "wanted .csv, .npy, .npz, an idx file"),
        ("a.csv", "1,2\n3,4\n", ["-o", "x.csv"], "-o writes .npz, got 'x.csv'"),
        ("a.csv", "1,2\n3,4\n", ["--samples", "9999"], "--samples may be at most 2,048, got 9,999"),
    ],
)
def test_bad_data_are_one_line(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    name: str,
    text: str,
    options: list[str],
    message: str,
) -> None:
    (tmp_path / name).write_text(text)
    assert main(["entanglement", str(tmp_path / name), *options]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.splitlines()) == 1


def test_what_does_not_fit_is_refused_with_its_numbers() -> None:
    with pytest.raises(BudgetError, match="number of features may be at most 4,096, got 5,000"):
        DataTable(numpy.zeros((2, 5000)))
    with pytest.raises(DataError, match=r"There are 3 samples, but labels of shape \(2,\)"):
        DataTable(numpy.zeros((3, 2)), numpy.zeros(2, dtype=numpy.int64))
    with pytest.raises(BudgetError, match="number of samples may be at most 2,048, got 3,000"):
        canonical_splits(DataTable(numpy.zeros((3000, 2))))
