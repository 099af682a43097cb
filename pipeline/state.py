"""The state of a job: Spark's checkpoint, and files of ours beside it.

    checkpoint/       Spark's own: which offsets each micro-batch was to have, which ones are done;
                      through Spark Connect micro_batch.json instead (`spark.micro_batches`)
    job.json          what the state is of: {"job": "archive", "topics": "orders", ...}
    NAME.json         what a job notes for itself
    lock              held while a job runs, on a local disk

In S3 there is no lock, and no checkpoint of Spark's either (`spark.range_stream`). A run that finds
a note changed by another one ends before it has written its own (`object_store`).

A checkpoint itself does not know which cluster it counts offsets of. Taken for another topic or
another cluster it would skip records or fail halfway: job.json is compared before a JVM starts.

Nor does Spark bring it to the disk. After a power cut its last files may be empty, and a query that
finds one does not start: they are removed, as if they had never been written. `keep` brings a plan
to the disk before a job notes anything that follows from it.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyarrow import fs

from pipeline.errors import ForeignState
from pipeline.filesystem import Location, locate, refusing, sync, write_whole
from pipeline.object_store import Notes, store_of

if TYPE_CHECKING:
    from collections.abc import Mapping

CHECKPOINT = "checkpoint"
PLANS = "offsets"
COMMITS = "commits"
IDENTITY = "job"
FORMAT_KEY, FORMAT = "format", 1
"""Of a state, where job.json has it: format 1 is not written down. A version that notes what this
one would misread has to say another."""
LOCK = "lock"
SUFFIX = ".json"


class State:
    """One job's state in a folder; `open` makes it. Picklable: executors may read it."""

    def __init__(self, location: Location) -> None:
        self.location = location
        self._lock: int | None = None
        self._notes: Notes | None = None

    @property
    def checkpoint(self) -> str:
        """The URI of the folder of Spark's own part."""
        return self.location.under(CHECKPOINT).uri

    @classmethod
    def check(cls, path: str, identity: Mapping[str, str]) -> None:
        """Raises ForeignState if there is a state of something else at `path`, Refused if it cannot
        be read, NotInstalled; changes nothing."""
        state = cls(locate(path))
        store_of(state.location)
        with refusing(f"use {path} for the state"):
            found = state._value(IDENTITY)
            files = state._files() if found is None else []
        if found is None:
            if files:
                raise ForeignState(
                    f"{path} is there and is no state of a pipeline: name an empty folder or a new "
                    "one with --state"
                )
            return
        if not isinstance(found, dict):
            raise ForeignState(
                f"{state.location.under(IDENTITY + SUFFIX).path} does not tell whose state it is: "
                "name an empty folder or a new one with --state"
            )
        if found.get(FORMAT_KEY, FORMAT) != FORMAT:
            raise ForeignState(
                f"the state in {path} is of format {found[FORMAT_KEY]}, and this version knows "
                f"format {FORMAT}: go on with the version that made it, or use another --state"
            )
        for key in (*identity, *(found.keys() - {FORMAT_KEY})):
            if found.get(key) != identity.get(key):
                raise ForeignState(
                    f"the state in {path} is of {key} {found.get(key)!r}, not of "
                    f"{identity.get(key)!r}: use another --state"
                )

    @classmethod
    def open(cls, path: str, identity: Mapping[str, str]) -> State:
        """Raises what `check` does, and ForeignState if another run holds it (local only)."""
        cls.check(path, identity)
        state = cls(locate(path))
        with refusing(f"use {path} for the state"):
            state.location.make()
            state._hold(path)
        store = store_of(state.location)
        state._notes = None if store is None else Notes(store)
        try:
            # Another run may have begun it in between, and ended already.
            cls.check(path, identity)
            with refusing(f"use {path} for the state"):
                state._clear_empty()
            if state.read(IDENTITY) is None:
                state.write(IDENTITY, dict(identity))
        except BaseException:
            state.close()
            raise
        return state

    def close(self) -> None:
        """Let another run have it."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def read(self, name: str) -> Any | None:
        """The value last written under this name; None if there is none. Raises ForeignState for
        one that is damaged, Refused."""
        with refusing(f"read {self.location.under(name + SUFFIX).path}"):
            return self._value(name)

    def _value(self, name: str) -> Any | None:
        location = self.location.under(name + SUFFIX)
        data = self._data(location)
        try:
            return None if data is None else json.loads(data)
        except ValueError as error:
            raise ForeignState(f"{location.path} is damaged: {error}") from None

    def _data(self, location: Location) -> bytes | None:
        if self._notes is not None:
            return self._notes.read(location)
        try:
            with location.filesystem.open_input_stream(location.path) as stream:
                return bytes(stream.read())
        except FileNotFoundError:
            return None

    def write(self, name: str, value: object) -> None:
        """Note something under a name; after a crash it is there whole, or what was before.

        Raises Refused, and ForeignState if another run has written it meanwhile.
        """
        data = json.dumps(value, indent=1, sort_keys=True).encode()
        place = self.location.under(name + SUFFIX)
        with refusing(f"write {place.path}"):
            if self._notes is not None:
                self._notes.write(place, data)
            else:
                write_whole(place, data)

    def take_over(self, name: str, otherwise: Mapping[str, Any]) -> Any:
        """The value under a name, or `otherwise`; in a store no run that read it before this one
        can write it any more. Raises Refused, ForeignState."""
        found = self.read(name)
        if self._notes is None:
            return found
        # Another text, so that it is another object also where tags are made of the content.
        value = {**(otherwise if found is None else found), "run": uuid.uuid4().hex}
        self.write(name, value)
        return value

    def keep(self, number: int) -> None:
        """Bring Spark's plan of a micro-batch to the disk, if there is one: before anything that
        follows from it is noted. Raises Refused."""
        if not self.location.is_local:
            return
        folder = Path(self.location.under(CHECKPOINT, PLANS).path)
        plan = folder / str(number)
        if not plan.exists():
            return
        with refusing(f"use {self.location.path} for the state"):
            for place in (plan, _checksums_of(plan), folder, folder.parent, folder.parent.parent):
                if place.exists():
                    sync(str(place))

    def names(self) -> list[str]:
        """The names under which something has been written, sorted."""
        return sorted(name.removesuffix(SUFFIX) for name in self._files() if name.endswith(SUFFIX))

    def remove(self, name: str) -> None:
        """Forget what is noted under a name, if anything is."""
        location = self.location.under(name + SUFFIX)
        if self._notes is not None:
            with refusing(f"remove {location.path}"):
                self._notes.remove(location)
        elif location.exists():
            location.filesystem.delete_file(location.path)

    def _clear_empty(self) -> None:
        if not self.location.is_local:
            return
        checkpoint = Path(self.location.under(CHECKPOINT).path)
        for log in (PLANS, COMMITS):
            found = [file for file in checkpoint.glob(f"{log}/*") if file.name.isdecimal()]
            for file in sorted(found, key=lambda file: int(file.name), reverse=True):
                if not _removed_if_empty(file):
                    break
        _removed_if_empty(checkpoint / "metadata")

    def _files(self) -> list[str]:
        """All but what a run leaves that was cut off before it had written anything."""
        selector = fs.FileSelector(self.location.path, allow_not_found=True)
        names = [found.base_name for found in self.location.filesystem.get_file_info(selector)]
        return [name for name in names if name != LOCK and not name.startswith(".")]

    def _hold(self, path: str) -> None:
        if not self.location.is_local:
            return
        lock = os.open(self.location.under(LOCK).path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            if sys.platform != "win32":  # Spark's jobs are not run there
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


def _checksums_of(file: Path) -> Path:
    """The file of checksums that Hadoop writes beside each file."""
    return file.with_name(f".{file.name}.crc")


def _removed_if_empty(file: Path) -> bool:
    if not file.exists() or file.stat().st_size:
        return False
    file.unlink()
    _checksums_of(file).unlink(missing_ok=True)
    return True
