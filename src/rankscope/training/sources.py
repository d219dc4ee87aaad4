"""Where data sets come from: a folder at hand, or the address that their authors published.

A data set that is in no data folder is downloaded into the first of them (without any, into the
user's cache), if pooch is installed and RANKSCOPE_OFFLINE is not set. What does not have the
published checksum is thrown away.
"""

import os
import tarfile
from dataclasses import dataclass
from pathlib import Path

from rankscope.architectures.models.published_weights import ENVIRONMENT, data_folders
from rankscope.errors import DataError
from rankscope.files import write_atomically

OFFLINE = "RANKSCOPE_OFFLINE"
_TIMEOUT = 30.0  # seconds without an answer


@dataclass(frozen=True)
class RemoteFile:
    """One file of a data set.

    Args:
        url: its address; its last part is the name that it gets.
        checksum: `sha256:...`, or `md5:...` where the authors published that.
        members: what is taken out of it, if it is an archive (tar); empty if it is kept as it is.
    """

    url: str
    checksum: str
    members: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """As it is saved."""
        return self.url.rsplit("/", 1)[1]


@dataclass(frozen=True)
class Source:
    """A data set in its public format.

    Args:
        folder: its place below a data folder.
        how: how to get it by hand, in a sentence.
        files: what is downloaded into the folder.
    """

    folder: str
    how: str
    files: tuple[RemoteFile, ...] = ()

    def locate(self, data: Path | None) -> Path:
        """The folder that holds the data set, downloaded if need be.

        Args:
            data: the folder above it; None for those of RANKSCOPE_DATA, and the cache.

        Raises:
            DataError: if it is not there and cannot be downloaded; says where it was looked for,
                and how to get it.
        """
        folders = [*data_folders(data), *_cache(data)]
        for folder in folders:
            if (folder / self.folder).is_dir():
                return folder / self.folder
        try:
            return self._downloaded(folders)
        except _DownloadError as error:
            named = ", ".join(str(folder) for folder in data_folders(data))
            raise DataError(
                f"There is no folder {self.folder!r} (looked in: "
                f"{named or 'no folder, as none was named'}), and {error}. {self.how} Name the "
                f"folder above it with --data or {ENVIRONMENT}."
            ) from error

    def _downloaded(self, folders: list[Path]) -> Path:
        if os.environ.get(OFFLINE):
            raise _DownloadError(f"{OFFLINE} is set, so that nothing is downloaded")
        if not self.files:
            raise _DownloadError("it cannot be downloaded")
        try:
            import pooch
        except ImportError as error:
            raise _DownloadError(
                "pip install 'rankscope[download]' is needed to download it"
            ) from error
        target = folders[0] / self.folder
        # A folder of that name is complete: it gets it last.
        partial = target.with_name(f"{target.name}.part")
        try:
            partial.mkdir(parents=True, exist_ok=True)
            for file in self.files:
                pooch.retrieve(
                    file.url,
                    known_hash=file.checksum,
                    fname=file.name,
                    path=partial,
                    downloader=pooch.HTTPDownloader(timeout=_TIMEOUT),
                )
                _unpack(partial / file.name, file.members)
            partial.rename(target)
        except (OSError, ValueError, KeyError, tarfile.TarError) as error:
            raise _DownloadError(f"downloading it failed ({error})") from error
        return target


class _DownloadError(Exception):
    """Why there is nothing to be had from the network."""


def _cache(data: Path | None) -> list[Path]:
    """Where downloads go that no folder was named for."""
    if data is not None:
        return []
    try:
        import pooch
    except ImportError:
        return []
    return [Path(pooch.os_cache("rankscope"))]


def _unpack(archive: Path, members: tuple[str, ...]) -> None:
    """Write the members beside the archive, under their last names, and delete it."""
    if not members:
        return
    with tarfile.open(archive) as opened:
        for member in members:
            content = opened.extractfile(member)
            if content is None:
                raise KeyError(f"{member} of {archive.name} is no file")
            write_atomically(archive.parent / Path(member).name, content.read())
    archive.unlink()
