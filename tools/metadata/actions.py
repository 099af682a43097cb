"""The actions of `triglot metadata`, from parsed arguments to printed lines."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from broker.metadata.following.effects import ObserverStopped
from storage.disk import DiskFilesystem
from storage.errors import DataDirectoryError, MalformedFile
from storage.identity import MetaProperties
from storage.layout import META_PROPERTIES, METADATA_LOG
from storage.metadata.loading import load
from tools.arguments import security_of
from tools.errors import NotDone
from tools.metadata.changes import Changes
from tools.metadata.facts import facts, lines
from tools.observer.follower import Follower, Watcher, connecting
from tools.observer.memory import InMemory
from tools.printing import print_json, print_lines, say

if TYPE_CHECKING:
    from argparse import Namespace as Arguments

    from protocol.logdata.metadata import MetadataRecord
    from protocol.logdata.metadata_names import SnapshotId
    from storage.metadata.image import MetadataImage
    from storage.metadata.loading import Loaded
    from tools.observer.files import Keeping

    Json = dict[str, object]

LOAD_TRIES = 5
"""A running broker may take a snapshot, and remove what it replaces, while its files are read."""


class Printed(Exception):
    """All that was asked for has been printed."""


# follow


class Printer(Watcher):
    """Prints the whole state, then each change as it happens."""

    def __init__(self, *, as_json: bool, once: bool) -> None:
        self.cluster_id: str | None = None
        self._as_json = as_json
        self._once = once
        self._connected = False
        self._changes = Changes()
        self._shown: list[str] | None = None

    def connected(self, address: str) -> None:
        self._connected = True

    def troubled(self, reason: str, wait_s: float) -> None:
        """A node that was never reached may not be there at all; one that was will come back."""
        if not self._connected:
            raise NotDone(reason)
        say(f"triglot: {reason}; trying again in {wait_s:g} s", sys.stderr)

    def downloading(self, snapshot_id: SnapshotId, position: int, size: int) -> None:
        if sys.stderr.isatty():
            end = "\x1b[K" if position < size else "\x1b[2K\r"
            sys.stderr.write(f"\rsnapshot {position} of {size} bytes{end}")
            sys.stderr.flush()

    def state(self, image: MetadataImage, end_offset: int) -> None:
        if self._as_json:
            print_json({"offset": end_offset, "state": facts(image)})
        else:
            self._state_lines(image, end_offset)
        sys.stdout.flush()
        if self._once:
            raise Printed

    def _state_lines(self, image: MetadataImage, end_offset: int) -> None:
        """All of it the first time, afterwards what is different: a snapshot came in between."""
        now = list(lines(image))
        before, self._shown = self._shown, now
        if before is None:
            say(f"state below offset {end_offset}", sys.stdout)
            print_lines(now)
            return
        gone, new = set(before) - set(now), set(now) - set(before)
        say(f"state below offset {end_offset}, from a snapshot", sys.stdout)
        print_lines(f"- {line}" for line in before if line in gone)
        print_lines(f"+ {line}" for line in now if line in new)

    def changed(self, offset: int, record: MetadataRecord, image: MetadataImage) -> None:
        if self._as_json:
            change = self._changes.json(record, image)
            if change is not None:
                print_json({"offset": offset, "change": change})
        else:
            line = self._changes.line(record, image)
            if line is not None:
                say(f"@{offset}  {line}", sys.stdout)
        self._changes.remember(record)
        sys.stdout.flush()


def run_follow(arguments: Arguments) -> None:
    """Until interrupted, or with `--once` until the state is printed."""
    host, port = arguments.address
    kept = _kept(arguments)
    printer = Printer(as_json=arguments.json, once=arguments.once)
    follower = Follower(
        [(host, port)],
        kept,
        watcher=printer,
        timeout_s=arguments.timeout,
        connect=connecting(security_of(arguments)),
    )
    try:
        follower.run()
    except Printed:
        return
    except ObserverStopped as stop:
        raise NotDone(str(stop)) from None
    finally:
        kept.close()


def _kept(arguments: Arguments) -> Keeping:
    if arguments.dir is None:
        return InMemory()
    from tools.observer.directory import ObserverDirectory

    return ObserverDirectory.open(DiskFilesystem(), _absolute(arguments.dir))


# show


def run_show(arguments: Arguments) -> None:
    """The state that the files of a directory give, and which files those are."""
    path = _absolute(arguments.path)
    if path.rpartition("/")[2] == METADATA_LOG:
        path = path.rpartition("/")[0] or "/"
    files = DiskFilesystem()
    if not files.is_dir(f"{path}/{METADATA_LOG}"):
        raise NotDone(
            f"{path} holds no {METADATA_LOG}: give a data directory (log.dirs, or "
            "metadata.log.dir) of triglot or Apache Kafka, or the folder of an observer"
        )
    identity = _identity(files, path)
    loaded = _loaded(files, path)
    if loaded.empty:
        raise NotDone(f"{loaded.folder} has neither log nor snapshot: nothing was written there")
    if arguments.json:
        print_json({**_about_json(identity, loaded), **facts(loaded.image)})
    else:
        print_lines(_about_lines(identity, loaded))
        print_lines(lines(loaded.image))


def _loaded(files: DiskFilesystem, path: str) -> Loaded:
    for _ in range(LOAD_TRIES - 1):
        try:
            return load(files, path)
        except (DataDirectoryError, FileNotFoundError):
            continue
    return load(files, path)


def _identity(files: DiskFilesystem, path: str) -> MetaProperties | None:
    properties = f"{path}/{META_PROPERTIES}"
    try:
        return MetaProperties.decode(files.read_bytes(properties), properties)
    except FileNotFoundError:
        return None
    except MalformedFile as error:
        raise NotDone(f"{error}: restore the file from a copy") from None


def _about_json(identity: MetaProperties | None, loaded: Loaded) -> Json:
    snapshot = loaded.snapshot
    return {
        "cluster_id": identity.cluster_id if identity else None,
        "node_id": identity.node_id if identity else None,
        "directory_id": (identity.directory_id or None) if identity else None,
        "leader_id": loaded.leader_id,
        "epoch": loaded.epoch,
        "snapshot": snapshot.file_name if snapshot else None,
        "log_start_offset": loaded.start_offset,
        "log_end_offset": loaded.end_offset,
        "last_timestamp_ms": loaded.last_timestamp_ms,
        "torn_bytes": loaded.torn.size if loaded.torn else 0,
        "damaged_snapshots": [str(damage) for damage in loaded.damaged],
        "open_transaction": loaded.image.transaction is not None,
    }


def _about_lines(identity: MetaProperties | None, loaded: Loaded) -> list[str]:
    told = []
    if identity is not None:
        told.append(f"cluster {identity.cluster_id}")
        if identity.node_id >= 0:
            told.append(f"node {identity.node_id}  directory {identity.directory_id or '(no id)'}")
    leader = f"  leader {loaded.leader_id}" if loaded.leader_id >= 0 else ""
    told.append(f"epoch {loaded.epoch}{leader}")
    told.append(f"snapshot {loaded.snapshot.file_name if loaded.snapshot else 'none'}")
    told.append(f"log from offset {loaded.start_offset} to below {loaded.end_offset}")
    told += [f"warning: {damage}; done without" for damage in loaded.damaged]
    if loaded.torn is not None:
        told.append(
            f"warning: {loaded.torn.file}: {loaded.torn.size} bytes from position "
            f"{loaded.torn.position} on are an append that is not finished"
        )
    if loaded.image.transaction is not None:
        told.append("warning: a transaction is open; its records do not count yet")
    return told


def _absolute(path: str) -> str:
    return os.path.abspath(path)  # noqa: PTH100 - storage takes strings
