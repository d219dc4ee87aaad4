"""The example that splits trained models runs without its data, on small random models."""

import json
import math
import struct
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from rankscope.networks import LlamaSizes

ROOT = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def _examples_can_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))


def write_safetensors(arrays: dict[str, Tensor], path: Path, kind: str = "F32") -> None:
    table, content = {}, b""
    for name, array in arrays.items():
        numbers = array.float().contiguous().numpy().tobytes()
        offsets = [len(content), len(content) + len(numbers)]
        table[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": offsets}
        content += numbers
    header = json.dumps(table | {"__metadata__": {"by": "a test"}}).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(len(header).to_bytes(8, "little") + header + content)


def published_arrays(model: nn.Module) -> dict[str, Tensor]:
    names = model.state_dict()
    return {name: names[name] for name in names if not name.endswith("num_batches_tracked")}


def write_stories(weights: Sequence[Tensor], sizes: Sequence[int], path: Path) -> None:
    numbers = b"".join(weight.detach().float().numpy().tobytes() for weight in weights)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(struct.pack("<7i", *sizes) + numbers)


def write_tokenizer(pieces: dict[bytes, float], path: Path) -> None:
    """Three special tokens and all bytes, then the pieces given."""
    first = {b"<unk>": 0.0, b"<s>": 0.0, b"</s>": 0.0}
    first |= {f"<0x{byte:02X}>".encode(): 0.0 for byte in range(256)}
    entries = [struct.pack("<fi", score, len(p)) + p for p, score in (first | pieces).items()]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(struct.pack("<i", 8) + b"".join(entries))


def test_patches_are_counted_row_by_row_and_put_together_again() -> None:
    from examples import resnet20

    images = torch.randn(2, 3, 32, 32)
    patches = resnet20.to_patches(images)
    for position in range(16):
        row, column = (8 * number for number in divmod(position, 4))
        cut = images[:, :, row : row + 8, column : column + 8]
        torch.testing.assert_close(patches[:, position], cut, rtol=0, atol=0)
    torch.testing.assert_close(resnet20.from_patches(patches), images, rtol=0, atol=0)


def test_a_saved_resnet_comes_back() -> None:
    from examples import resnet20

    images = torch.randn(3, 3, 32, 32)
    model = resnet20.untrained(images, seed=1)
    assert sum(weight.numel() for weight in model.parameters()) == 269_722
    write_safetensors(published_arrays(model), Path("resnet.safetensors"))
    again = resnet20.trained(Path("resnet.safetensors"))
    patches = resnet20.to_patches(images)
    with torch.no_grad():
        torch.testing.assert_close(resnet20.PatchClassifier(again)(patches), model(images))


def test_a_file_of_other_weights_or_types_is_refused() -> None:
    from examples import resnet20

    path = Path("other.safetensors")
    write_safetensors({"conv1.weight": torch.zeros(16, 3, 3, 3)}, path)
    with pytest.raises(ValueError, match=r"other.safetensors does not hold .*: bn1.weight"):
        resnet20.trained(path)
    write_safetensors({"conv1.weight": torch.zeros(1)}, path, kind="F16")
    with pytest.raises(ValueError, match=r"conv1.weight holds F16, and only F32"):
        resnet20.trained(path)


def test_images_are_read_with_their_labels() -> None:
    from examples import resnet20

    pixels = torch.randint(256, (2, 3, 32, 32), dtype=torch.uint8)
    rows = torch.cat([torch.tensor([[3], [7]], dtype=torch.uint8), pixels.flatten(1)], dim=1)
    Path("batch.bin").write_bytes(rows.numpy().tobytes())
    images, labels = resnet20.read_cifar10(Path("batch.bin"))
    assert labels.tolist() == [3, 7]
    torch.testing.assert_close(images[:, 1] * 0.224 + 0.456, pixels[:, 1].float() / 255)
    linear = nn.Linear(3072, 10)
    nn.init.zeros_(linear.weight)
    linear.bias = nn.Parameter(torch.eye(10)[7])
    assert resnet20.accuracy(nn.Sequential(nn.Flatten(), linear), images, labels) == 0.5


SIZES = (8, 12, 2, 4, 2, 300, 32)


def stories_weights(model: nn.Module) -> list[Tensor]:
    attention = [f"attention.{part}" for part in ("query", "key", "value", "out")]
    parts = ["attention_norm", *attention, "forward_norm", "gate", "down", "up"]
    names = [f"blocks.{k}.{part}" for part in parts for k in range(2)]
    return [model.get_parameter(f"llama.{name}.weight") for name in ("tokens", *names, "norm")]


def test_a_saved_llama_comes_back() -> None:
    from examples import stories260k

    model = stories260k.untrained(LlamaSizes(*SIZES), seed=0)
    write_stories(stories_weights(model), SIZES, Path("stories.bin"))
    again = stories260k.trained(Path("stories.bin"))
    tokens = torch.randint(300, (3, 6))
    torch.testing.assert_close(again(tokens), model(tokens), rtol=1e-5, atol=1e-6)
    assert len(stories260k.continued(again, length=4)) == 4


def test_the_best_pair_is_merged_first() -> None:
    from examples import stories260k

    write_tokenizer(
        {b" ": -9.0, b"a": -9.0, b"b": -9.0, b"ab": -2.0, b"ba": -1.0, b" a": -3.0}, Path("tok.bin")
    )
    tokenizer = stories260k.Tokenizer.read(Path("tok.bin"))
    pieces = [tokenizer.pieces[token] for token in tokenizer.encode("aba")]
    assert pieces == [b" a", b"ba"]
    assert tokenizer.encode("é")[1:] == [byte + 3 for byte in "é".encode()]


@given(st.text(alphabet="ab cé\n"))
def test_encoded_text_is_decoded_again(text: str) -> None:
    from examples import stories260k

    special = (b"<unk>", b"<s>", b"</s>", *(f"<0x{byte:02X}>".encode() for byte in range(256)))
    pieces = (*special, b" ", b"a", b"b", b" a", b"ab", b"b ")
    tokenizer = stories260k.Tokenizer(pieces, tuple(-float(k) for k in range(len(pieces))))
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_inputs_that_repeat_a_half_are_left_out() -> None:
    from examples import split_trained_models as example

    partitions = example.text_partitions(4, seed=0)
    windows = torch.tensor([[1, 2, 3, 4], [1, 2, 5, 6], [5, 6, 3, 4], [7, 8, 9, 9]])
    assert example.with_new_halves(windows, partitions).tolist() == [[1, 2, 3, 4], [7, 8, 9, 9]]


def test_all_splits_of_images_are_balanced_and_differ() -> None:
    from examples import split_trained_models as example

    partitions = example.image_partitions(seed=0)
    assert all(partition.is_balanced for partition in partitions.values())
    assert len({frozenset((p.left, p.right)) for p in partitions.values()}) == 4
    assert partitions["left-right"].left == (0, 1, 4, 5, 8, 9, 12, 13)
    assert partitions["top-bottom"].left == tuple(range(8))


class SumOverPatches(nn.Module):
    """Joins nothing: every patch adds its own share."""

    def forward(self, patches: Tensor) -> Tensor:
        return patches.square().sum(dim=(1, 2, 3, 4))[:, None]


def test_a_sum_over_patches_has_rank_two_and_a_network_more() -> None:
    from examples import resnet20
    from examples import split_trained_models as example

    images = torch.randn(8, 3, 32, 32, dtype=torch.float64)
    network = resnet20.untrained(images.float(), seed=0, width=2).double()
    models: dict[str, nn.Module] = {
        "trained": SumOverPatches(),
        "untrained": resnet20.PatchClassifier(network),
    }
    split_model = example.SplitModel(
        "small", models, resnet20.to_patches(images), 0, example.image_partitions(seed=0), ""
    )
    rows = example.measure_all([split_model])
    assert len(rows) == 8
    for row in rows:
        assert row.numeric_rank == (2 if row.weights == "trained" else 8)
        assert row.rank_within_tenth <= row.rank_within_hundredth <= row.numeric_rank
        assert row.entropy <= math.log(row.numeric_rank)
        assert row.entropy_curve[-1] == [8, row.entropy]
        assert math.isclose(math.hypot(*row.singular_values), 1)


def test_missing_files_are_all_named_with_their_source(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from examples import split_trained_models as example

    Path("stories260k").mkdir()
    Path("stories260k/tok512.bin").touch()
    monkeypatch.setenv("RANKSCOPE_DATA", ".")
    with pytest.raises(SystemExit) as refusal:
        example.main([])
    message = str(refusal.value)
    assert "Looked in ., and did not find" in message
    assert "resnet20.safetensors  (github.com/akamaster" in message
    assert "tok512.bin" not in message
    assert message.count("\n") == len(example.FILES) - 1


@pytest.mark.slow
def test_the_command_writes_table_numbers_and_picture(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from examples import resnet20, split_report, stories260k
    from examples import split_trained_models as example

    data = Path("data")
    write_safetensors(
        published_arrays(resnet20.untrained(torch.randn(4, 3, 32, 32), seed=2)),
        data / "resnet_cifar10/resnet20.safetensors",
    )
    (data / "cifar-10-batches-bin").mkdir()
    rows = torch.randint(10, (6, 3073), dtype=torch.uint8)
    (data / "cifar-10-batches-bin/test_batch.bin").write_bytes(rows.numpy().tobytes())
    weights = stories_weights(stories260k.untrained(LlamaSizes(*SIZES), seed=0))
    write_stories(weights, SIZES, data / "stories260k/stories260K.bin")
    write_tokenizer({b" ": 0.0, b"a": -1.0}, data / "stories260k/tok512.bin")
    (data / "multi30k").mkdir()
    captions = ["dog and cat and cow", "two men on one bench", "the boat on the sea", "short"]
    (data / "multi30k/test_2016_flickr.en").write_text("\n".join(captions), encoding="utf-8")
    monkeypatch.setattr(example, "SAMPLES", 3)
    example.main([str(data), "--out", "out"])
    printed = capsys.readouterr().out
    found = split_report.read_rows(Path("out/split_trained_models.json"))
    assert [row.samples for row in found] == [3] * 14
    assert "\n".join(split_report.table(found)) in printed
    assert "story begins NOT as published" in printed
    picture = Path("out/split_trained_models.svg").read_text(encoding="utf-8")
    assert "ResNet-20, 3 x 3 halves" in picture
    assert "checkerboard" in picture


def test_the_page_shows_the_numbers_that_were_written() -> None:
    from examples import split_report

    rows = split_report.read_rows(ROOT / "docs/pictures/split_trained_models.json")
    page = (ROOT / "docs/real_models.md").read_text(encoding="utf-8")
    assert "\n".join(split_report.table(rows)) in page
