"""What a job has done so far: Spark's checkpoint, and files of ours beside it.

    checkpoint/       Spark's own: which offsets each micro-batch was to have, which ones are done
    job.json          what the state is of: {"job": "archive", "topics": "orders", ...}
    NAME.json         what a job notes for itself
    lock              held while a job runs, on a local disk

A checkpoint itself does not know which cluster it counts offsets of. Taken for another topic or
another cluster it would skip records or fail halfway: job.json is compared before a JVM starts.
"""

from __future__ import annotations

import fcntl
import json
import os
from typing import TYPE_CHECKING, Any

from pyarrow import fs

from pipeline.errors import ForeignState
from pipeline.filesystem import Location, locate, write_whole

if TYPE_CHECKING:
    from collections.abc import Mapping

IDENTITY = "job"
LOCK = "lock"
SUFFIX = ".json"


class State:
    """One job's state in a folder; `open` makes it. Picklable: executors may read it."""

    def __init__(self, location: Location) -> None:
        self.location = location
        self._lock: int | None = None

    @property
    def checkpoint(self) -> str:
        """Where Spark keeps its part, as a URI."""
        return self.location.under("checkpoint").uri

    @classmethod
    def check(cls, path: str, identity: Mapping[str, str]) -> None:
        """Raises ForeignState if there is a state of something else at `path`; changes nothing."""
        state = cls(locate(path))
        found = state.read(IDENTITY)
        if found is None:
            if state.location.exists() and state._files():
                raise ForeignState(
                    f"{path} is there and is no state of a pipeline: name an empty folder or a new "
                    "one with --state"
                )
            return
        for key in (*identity, *found):
            if found.get(key) != identity.get(key):
                raise ForeignState(
                    f"the state in {path} is of {key} {found.get(key)!r}, not of "
                    f"{identity.get(key)!r}: use another --state"
                )

    @classmethod
    def open(cls, path: str, identity: Mapping[str, str]) -> State:
        """Raises ForeignState as `check` does, and if another run holds the state (local only)."""
        cls.check(path, identity)
        state = cls(locate(path))
        state.location.make()
        state._hold(path)
        if state.read(IDENTITY) is None:
            state.write(IDENTITY, dict(identity))
        return state

    def close(self) -> None:
        """Let another run have it."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def read(self, name: str) -> Any | None:
        """What was last written under this name; None if nothing was."""
        location = self.location.under(name + SUFFIX)
        try:
            with location.filesystem.open_input_stream(location.path) as stream:
                return json.loads(stream.read())
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise ForeignState(f"{location.path} is damaged: {error}") from None

    def write(self, name: str, value: object) -> None:
        """Note something under a name; after a crash it is there whole, or what was before."""
        data = json.dumps(value, indent=1, sort_keys=True).encode()
        write_whole(self.location.under(name + SUFFIX), data)

    def names(self) -> list[str]:
        """What something has been written under, sorted."""
        return sorted(name.removesuffix(SUFFIX) for name in self._files() if name.endswith(SUFFIX))

    def remove(self, name: str) -> None:
        """Forget what is noted under a name, if anything is."""
        location = self.location.under(name + SUFFIX)
        if location.exists():
            location.filesystem.delete_file(location.path)

    def _files(self) -> list[str]:
        selector = fs.FileSelector(self.location.path, allow_not_found=True)
        return [found.base_name for found in self.location.filesystem.get_file_info(selector)]

    def _hold(self, path: str) -> None:
        if not self.location.is_local:
            return
        lock = os.open(self.location.under(LOCK).path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            raise ForeignState(
                f"another run uses the state in {path}: wait for it, or stop it"
            ) from None
        self._lock = lock

    def __getstate__(self) -> Location:
        return self.location

    def __setstate__(self, location: Location) -> None:
        self.__init__(location)  # type: ignore[misc]
