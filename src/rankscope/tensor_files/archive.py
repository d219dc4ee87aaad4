"""The directory of a zip archive, checked against the bytes of the file before anything is read."""

import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from rankscope.errors import ModelFileError, printable

_LOCAL_HEADER = 30  # bytes before the name of a part, which its directory does not count
# Packed parts: repetitive data shrink, but not all of them to nothing. Up to 128 MB nobody minds.
_LARGEST_RATIO = 32
_ANYWAY = 128 * 2**20


@dataclass(frozen=True)
class Part:
    """One file of an archive.

    Args:
        name: of the part.
        start: byte of the file where its content begins.
        num_bytes: of its content, unpacked.
        is_packed: whether it is compressed.
        info: what `zipfile` reads it by.
    """

    name: str
    start: int
    num_bytes: int
    is_packed: bool
    info: zipfile.ZipInfo


def read_parts(file: BinaryIO, size: int, path: Path) -> dict[str, Part]:
    """Every part of an archive by its name; nothing is unpacked.

    Raises:
        ModelFileError: if the archive is damaged or encrypted, or its parts claim more bytes than
            the file can hold.
    """
    try:
        with zipfile.ZipFile(file) as archive:
            infos = archive.infolist()
    except Exception as error:
        # A damaged archive raises more than BadZipFile, such as struct.error.
        reason = printable(str(error))
        raise ModelFileError(f"{path} is a damaged or cut off zip archive: {reason}.") from error
    _check_sizes(infos, size, path)
    parts: dict[str, Part] = {}
    for info in infos:
        if info.filename in parts:
            raise ModelFileError(f"{path}: two parts are called '{printable(info.filename)}'.")
        parts[info.filename] = _read_part(file, info, size, path)
    return parts


def _check_sizes(infos: list[zipfile.ZipInfo], size: int, path: Path) -> None:
    stored = sum(info.compress_size for info in infos)
    if stored > size:
        raise ModelFileError(
            f"{path} has {size:,} bytes, but its {len(infos)} parts claim {stored:,}."
        )
    require_plausible(sum(info.file_size for info in infos), size, who=str(path))


def most_believed(size: int) -> int:
    """How many bytes a packed file of this size may hold."""
    return max(_ANYWAY, _LARGEST_RATIO * size)


def require_plausible(num_bytes: int, size: int, *, who: str) -> None:
    """Refuse packed data that say that they are far larger than the file they are packed in.

    Raises:
        ModelFileError: with both sizes.
    """
    allowed = most_believed(size)
    if num_bytes > allowed:
        raise ModelFileError(
            f"{who} has {size:,} bytes and claims to hold {num_bytes:,} when unpacked; at most "
            f"{allowed:,} are believed. Write it again without compression."
        )


def _read_part(file: BinaryIO, info: zipfile.ZipInfo, size: int, path: Path) -> Part:
    who = f"{path}: part '{printable(info.filename)}'"
    file.seek(info.header_offset)
    header = file.read(_LOCAL_HEADER)
    name_length = int.from_bytes(header[26:28], "little")
    start = info.header_offset + _LOCAL_HEADER + name_length
    start += int.from_bytes(header[28:30], "little")
    if header[:4] != b"PK\x03\x04" or start + info.compress_size > size:
        raise ModelFileError(f"{who} is damaged, or not where the directory says.")
    if info.flag_bits & 1:
        raise ModelFileError(f"{who} is encrypted.")
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ModelFileError(f"{who} is packed in a way that is not read ({info.compress_type}).")
    is_packed = info.compress_type != zipfile.ZIP_STORED
    if not is_packed and info.compress_size != info.file_size:
        raise ModelFileError(
            f"{who} is not packed, but has {info.compress_size:,} bytes and claims "
            f"{info.file_size:,}."
        )
    return Part(info.filename, start, info.file_size, is_packed, info)
