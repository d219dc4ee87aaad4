"""Published weights are found where the user says, or the message says how to get them."""

import os
from pathlib import Path

import pytest

from rankscope.errors import DataError
from rankscope.networks import BUILT_IN, PUBLISHED, data_folders, find_data, find_weights


@pytest.fixture(autouse=True)
def _no_folder_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANKSCOPE_DATA", raising=False)


def put(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    return path


def test_every_name_is_that_of_a_built_in_network() -> None:
    assert PUBLISHED.keys() <= BUILT_IN.keys()


def test_a_file_is_found_in_the_folder_given_or_in_those_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = put(tmp_path / "one" / "resnet_cifar10" / "resnet32.safetensors")
    two = put(tmp_path / "two" / "minilm" / "model.safetensors")
    assert find_weights("resnet32", tmp_path / "one") == one
    folders = os.pathsep.join(["", str(tmp_path / "one"), str(tmp_path / "two")])
    monkeypatch.setenv("RANKSCOPE_DATA", folders)
    assert data_folders(None) == (tmp_path / "one", tmp_path / "two")
    assert find_weights("minilm") == two
    with pytest.raises(DataError, match=r"There is no minilm/model.safetensors .looked in: .*one"):
        find_weights("minilm", tmp_path / "one")


def test_a_packed_file_takes_the_place_of_the_plain_one(tmp_path: Path) -> None:
    packed = put(tmp_path / "words.dict.xz")
    assert find_data("words.dict", tmp_path, source="nowhere") == packed
    plain = put(tmp_path / "words.dict")
    assert find_data("words.dict", tmp_path, source="nowhere") == plain


def test_without_a_folder_the_message_says_how_to_get_the_file() -> None:
    with pytest.raises(
        DataError,
        match=r"no g2p_en/checkpoint20.npz \(looked in: no folder, as none was named\). To get it, "
        r"take checkpoint20.npz of the PyPI package g2p_en.*--data or RANKSCOPE_DATA",
    ):
        find_weights("letter-to-phoneme")


def test_a_network_without_published_weights_is_refused_with_the_others() -> None:
    with pytest.raises(DataError, match=r"of 'vgg16-bn' are known, only of digits, .*resnet20"):
        find_weights("vgg16-bn")


def test_embedded_weights_need_no_folder() -> None:
    for name in ("digits", "transformer"):
        assert find_weights(name).is_file()
