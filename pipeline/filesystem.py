"""The file systems of archives and states: a local folder, or any that pyarrow.fs has a scheme for.

On a local disk what is written whole is synced, its name too, before anybody relies on it. Object
stores do that by themselves, and have neither folders nor names to be changed: `object_store` has
what S3 has in their place.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from pyarrow import fs

from pipeline.errors import Refused, WrongUse

if TYPE_CHECKING:
    from collections.abc import Iterator

ATTEMPTS = 8
"""Of each request to S3, the first one too, with growing pauses: for about half a minute. Where
AWS_MAX_ATTEMPTS is set, it is that, as for all of AWS's tools."""
CONNECT_TIMEOUT_S = 10
REQUEST_TIMEOUT_S = 60
S3_SCHEMES = ("s3", "s3a")


ANNOUNCED = ".announced"
"""Ends the name of a file that says who is about to create another one."""

HADOOP_SCHEMES = {"s3": "s3a", "gcs": "gs"}
"""Where Hadoop's name of a store is not Arrow's. Its own `s3` is of another age, and gone."""


class Location(NamedTuple):
    """A folder: a file system, and the path of the folder in it."""

    filesystem: fs.FileSystem
    path: str

    @property
    def is_local(self) -> bool:
        """Whether this machine's own file system calls work on it."""
        return isinstance(self.filesystem, fs.LocalFileSystem)

    @property
    def is_s3(self) -> bool:
        """Whether it is in S3, or in a store that answers like it."""
        return isinstance(self.filesystem, fs.S3FileSystem)

    @property
    def uri(self) -> str:
        """The name that Spark knows it by; without a scheme it would take its default's."""
        if self.is_local:
            return Path(self.path).as_uri()
        kind = HADOOP_SCHEMES.get(self.filesystem.type_name, self.filesystem.type_name)
        return self.path if "://" in self.path else f"{kind}://{self.path}"

    def under(self, *names: str) -> Location:
        """A folder or file below it."""
        return Location(self.filesystem, "/".join((self.path.rstrip("/"), *names)))

    def exists(self) -> bool:
        """Whether a file or folder is there."""
        return bool(self.filesystem.get_file_info(self.path).type != fs.FileType.NotFound)

    def make(self) -> None:
        """Make the folder, and those above it. Raises OSError."""
        if self.is_s3:
            return  # an object needs none, and an empty one in place of a folder is in the way
        if not self.is_local:
            self.filesystem.create_dir(self.path, recursive=True)
            return
        folder = Path(self.path)
        new = [one for one in (folder, *folder.parents) if not one.exists()]
        folder.mkdir(parents=True, exist_ok=True)
        for one in new:
            sync(str(one.parent))


def locate(path: str) -> Location:
    """Raises WrongUse for a scheme that is not known here."""
    if "://" not in path:
        return Location(fs.LocalFileSystem(), str(Path(path).absolute()))
    if path.partition("://")[0] in S3_SCHEMES:
        return _in_s3(path)
    try:
        return Location(*fs.FileSystem.from_uri(path))
    except (ValueError, OSError) as error:
        raise WrongUse(f"cannot use {path} as a place for files: {error}") from None


def _in_s3(uri: str) -> Location:
    """Raises WrongUse for a URI with more in it than a bucket and a path."""
    parts = urlsplit(uri)
    if parts.username is not None or parts.query:
        # It may have a password in it: not even the mistake is to show that.
        raise WrongUse(
            f"s3://{parts.hostname}{parts.path} was given with credentials or options in it: give "
            "s3://BUCKET/PATH alone, and the rest as AWS's tools have it, in the environment "
            "(AWS_ACCESS_KEY_ID, AWS_ENDPOINT_URL_S3, ...) or in ~/.aws"
        )
    if not parts.netloc or parts.fragment:
        raise WrongUse(f"{uri} names no place in S3: give s3://BUCKET/PATH")
    scheme, _, address = s3_endpoint().rpartition("://")
    filesystem = fs.S3FileSystem(
        scheme=scheme or "https",
        endpoint_override=address or None,
        connect_timeout=CONNECT_TIMEOUT_S,
        request_timeout=REQUEST_TIMEOUT_S,
        # What is small is one request then, and not three.
        allow_delayed_open=True,
        retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=attempts()),
    )
    return Location(filesystem, f"{parts.netloc}{parts.path}".rstrip("/"))


def s3_endpoint() -> str:
    """The URL of a server of S3 by the environment, which the SDK for C++ does not look at; empty
    for AWS itself."""
    found = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""
    return found.rstrip("/")


def attempts() -> int:
    """How often a request to S3 is made before it has failed. Raises WrongUse."""
    told = os.environ.get("AWS_MAX_ATTEMPTS", str(ATTEMPTS))
    if not (told.isascii() and told.isdigit() and int(told)):
        raise WrongUse(f"AWS_MAX_ATTEMPTS is {told!r}: wanted a whole number above 0")
    return int(told)


def write_whole(location: Location, data: bytes) -> None:
    """Put the file there whole or not at all, over an older one. Raises OSError."""
    if location.is_s3:
        with location.filesystem.open_output_stream(location.path) as stream:
            stream.write(data)
        return
    folder, _, name = location.path.rpartition("/")
    # Hidden, so that what a crash leaves of it is not taken for somebody else's file.
    part = Location(location.filesystem, f"{folder}/.{name}.part")
    with part.filesystem.open_output_stream(part.path) as stream:
        stream.write(data)
    replace(part, location)


def create_whole(location: Location, data: bytes) -> bool:
    """Put a new file there, whole or not at all: False if there is one, or may be in a moment.

    Of two that do this at once at most one is told True. On an object store, which need have
    nothing that is done once, each announces itself before it looks for others: if both do before
    either looks, neither goes on. Raises OSError.
    """
    folder, _, name = location.path.rpartition("/")
    mine = Location(location.filesystem, f"{folder}/.{name}.{uuid.uuid4().hex}{ANNOUNCED}")
    with mine.filesystem.open_output_stream(mine.path) as stream:
        stream.write(data)
    try:
        if location.is_local:
            return _linked(mine, location)
        selector = fs.FileSelector(folder)
        names = [info.base_name for info in location.filesystem.get_file_info(selector)]
        others = [one for one in names if one.startswith(f".{name}.") and one.endswith(ANNOUNCED)]
        if name in names or len(others) > 1:
            return False
        write_whole(location, data)
        return True
    finally:
        mine.filesystem.delete_file(mine.path)


def _linked(source: Location, target: Location) -> bool:
    sync(source.path)
    try:
        os.link(source.path, target.path)
    except FileExistsError:
        return False
    sync(str(Path(target.path).parent))
    return True


def replace(source: Location, target: Location) -> None:
    """Rename a whole file over whatever has its name. Raises OSError."""
    if not source.is_local:
        source.filesystem.move(source.path, target.path)
        return
    sync(source.path)
    Path(source.path).replace(target.path)
    sync(str(Path(target.path).parent))


def sync(path: str) -> None:
    """Bring a local file, or the names in a local folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def reason(failure: OSError) -> str:
    """The system's message, without what Arrow puts around it."""
    return os.strerror(failure.errno) if failure.errno else str(failure)


@contextlib.contextmanager
def refusing(what: str) -> Iterator[None]:
    """Makes one line of what a file system has against it: `what` is as in "write lake/orders".

    Raises Refused.
    """
    try:
        yield
    except OSError as failure:
        raise Refused(f"cannot {what}: {reason(failure)}") from None


def try_to_write(folder: Location) -> None:
    """Make the folder, and write and remove a file in it. Raises OSError."""
    probe = folder.under(".probe")
    folder.make()
    write_whole(probe, b"")
    probe.filesystem.delete_file(probe.path)
