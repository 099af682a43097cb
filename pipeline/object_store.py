"""S3 beyond what a file system's calls can do: puts with a condition, and copies within the store.

An object is there whole or not at all, and is seen by everybody once it is; nothing is renamed. So
one writer's notes are each written over what that writer last saw of them (If-Match,
If-None-Match), and a second writer is told, whatever the clocks say and without a lock to be left
behind. Only the driver does any of this: tasks write and read through Arrow.

Requests that a store throttles or fails (503 SlowDown, 500, a cut connection) are tried again by
the AWS SDK, with growing random pauses and a limit (`filesystem.attempts`). Credentials,
region and endpoint are those of the standard environment and files of AWS.
"""

from __future__ import annotations

import contextlib
import functools
import os
from typing import TYPE_CHECKING, Any

from pipeline.errors import ForeignState, NotInstalled
from pipeline.filesystem import CONNECT_TIMEOUT_S, REQUEST_TIMEOUT_S, attempts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pipeline.filesystem import Location

AT_ONCE = 16
"""Requests of one driver at the same time."""
REWRITES = 3
"""How often a note is written again whose store has answered that others write it just now."""
PART_BYTES = 1 << 30
"""Objects above it are copied in parts of this size. A store copies 5 GiB at once at most."""
DELETED_AT_ONCE = 1000
"""What one request may name."""

_REFUSED = ("PreconditionFailed", "ConditionalRequestConflict", "412", "409")
_ABSENT = ("NoSuchKey", "NoSuchUpload", "NotFound", "404")
_UNKNOWN = ("NotImplemented", "501")


def store_of(location: Location) -> Store | None:
    """The store that a location is in; None for a file system. Raises NotInstalled."""
    return Store(_client()) if location.is_s3 else None


@functools.cache
def _client() -> Any:
    """One for a process: it may be used by several threads, and is dear to make."""
    try:
        import boto3
        from botocore.config import Config
    except ImportError as error:
        raise NotInstalled(
            f"a state or an archive in S3 needs boto3 here ({error}): pip install triglot[s3]"
        ) from None
    return boto3.client(
        "s3",
        # Arrow knows the region by this name too, and the SDK for Python by another one only.
        region_name=os.environ.get("AWS_REGION"),
        config=Config(
            retries={"mode": "standard", "total_max_attempts": attempts()},
            connect_timeout=CONNECT_TIMEOUT_S,
            read_timeout=REQUEST_TIMEOUT_S,
            max_pool_connections=AT_ONCE,
        ),
    )


class Store:
    """The objects of all buckets that the credentials open. What fails is an OSError."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def get(self, location: Location) -> tuple[bytes, str] | None:
        """An object and its entity tag; None if there is none."""
        try:
            with _failing():
                found = self._client.get_object(**_named(location))
                return found["Body"].read(), found["ETag"]
        except FileNotFoundError:
            return None

    def put(self, location: Location, data: bytes, *, over: str | None) -> str:
        """Write an object over the one with this entity tag, or where there is none; its own tag.

        Raises FileExistsError if another one is there. A store that knows no conditions takes it.
        """
        condition = {"IfNoneMatch": "*"} if over is None else {"IfMatch": over}
        with _failing():
            try:
                written = self._client.put_object(**_named(location), Body=data, **condition)
            except self._client.exceptions.ClientError as failure:
                if _code(failure) not in _UNKNOWN:
                    raise
                written = self._client.put_object(**_named(location), Body=data)
        return str(written["ETag"])

    def create(self, location: Location, data: bytes) -> bool:
        """Write an object where there is none: False if there is one, perhaps by this very request,
        whose answer was lost and which was made again."""
        try:
            self.put(location, data, over=None)
        except FileExistsError:
            return False
        return True

    def copy(self, source: Location, target: Location) -> None:
        """Copy an object of any size within the store. Raises FileNotFoundError."""
        from boto3.s3.transfer import TransferConfig

        whole = TransferConfig(multipart_threshold=PART_BYTES, multipart_chunksize=PART_BYTES)
        with _failing():
            self._client.copy(_named(source), **_named(target), Config=whole)

    def exists(self, location: Location) -> bool:
        """Whether there is such an object."""
        try:
            with _failing():
                self._client.head_object(**_named(location))
        except FileNotFoundError:
            return False
        return True

    def clear(self, folder: Location) -> None:
        """Remove all objects below a folder, and what was begun to be written there."""
        name = _named(folder)
        place = {"Bucket": name["Bucket"], "Prefix": f"{name['Key'].rstrip('/')}/"}
        with _failing():
            for upload in self._listed("list_multipart_uploads", "Uploads", place):
                with contextlib.suppress(FileNotFoundError), _failing():
                    self._client.abort_multipart_upload(
                        Bucket=place["Bucket"], Key=upload["Key"], UploadId=upload["UploadId"]
                    )
            keys = [
                {"Key": found["Key"]}
                for found in self._listed("list_objects_v2", "Contents", place)
            ]
            for begin in range(0, len(keys), DELETED_AT_ONCE):
                some = keys[begin : begin + DELETED_AT_ONCE]
                answer = self._client.delete_objects(
                    Bucket=place["Bucket"], Delete={"Objects": some, "Quiet": True}
                )
                for refused in answer.get("Errors", ()):
                    raise OSError(f"{refused['Key']} is not deleted: {refused['Code']}")

    def delete(self, location: Location) -> None:
        """Remove an object, if it is there."""
        with _failing():
            self._client.delete_object(**_named(location))

    def _listed(self, request: str, what: str, place: dict[str, str]) -> Iterator[dict[str, Any]]:
        for page in self._client.get_paginator(request).paginate(**place):
            yield from page.get(what, ())


class Notes:
    """Small objects of one writer, who is told where another one writes them too."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._seen: dict[str, str | None] = {}

    def read(self, place: Location) -> bytes | None:
        """What is there now, over which the next write goes; None if nothing is."""
        found = self._store.get(place)
        self._seen[place.path] = None if found is None else found[1]
        return None if found is None else found[0]

    def write(self, place: Location, data: bytes) -> None:
        """Raises ForeignState if another one has written it since it was read, OSError."""
        if place.path not in self._seen:
            self.read(place)
        for _ in range(REWRITES):
            over = self._seen[place.path]
            try:
                self._seen[place.path] = self._store.put(place, data, over=over)
                return
            except FileExistsError:
                # Perhaps it was this very write, whose answer was lost, and which was tried again.
                if self.read(place) == data:
                    return
                if self._seen[place.path] != over:
                    break
        raise ForeignState(
            f"another run has written {place.path}: two runs use one state; wait for it, or stop it"
        )

    def remove(self, place: Location) -> None:
        """Delete it, if it is there."""
        self._store.delete(place)
        self._seen[place.path] = None


def _named(location: Location) -> dict[str, str]:
    bucket, _, key = location.path.partition("/")
    return {"Bucket": bucket, "Key": key}


@contextlib.contextmanager
def _failing() -> Iterator[None]:
    """What the SDK raises is an OSError of one line: what the store said, and no credentials."""
    from boto3.exceptions import Boto3Error
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except ClientError as failure:
        code = _code(failure)
        if code in _ABSENT:
            raise FileNotFoundError(code) from None
        if code in _REFUSED:
            raise FileExistsError(code) from None
        message = failure.response.get("Error", {}).get("Message", "")
        raise OSError(f"the store answers {code}: {message}") from None
    except (BotoCoreError, Boto3Error) as failure:
        raise OSError(str(failure)) from None


def _code(failure: Any) -> str:
    return str(failure.response.get("Error", {}).get("Code", ""))
