"""A micro-batch's files become part of an archive: all of them, once, whatever is cut off when.

Tasks write into `_staging/<micro-batch>/`. What is to be moved where is noted in the state before
the first file is, and that note is the moment from which the micro-batch is part of the archive:
a run that finds one unfinished finishes it, before anything else, from the files that were staged.
It needs nothing from the broker for it, which may have deleted the offsets in the meantime, and
it does not matter whether Spark would cut the same offsets into the same ranges again.

    published.json    in the state: the last micro-batch, its files, what they cover, and whether it
                      is done

Of an archive that is a table, files are moved below the table's data, are added to it, and then
what they cover is noted: once the table has them, anybody's maintenance may remove them.

A store of objects moves nothing: there they are copied within the store, some at a time, and what
was staged is removed once all are there. Nobody reads `_staging`, and copying twice is copying
once.
"""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from pyarrow import fs

from pipeline.archiving.archive_files import STAGING, describe, names_in
from pipeline.archiving.coverage import Coverage, Covered
from pipeline.errors import ForeignState, Refused
from pipeline.filesystem import Location, refusing, sync
from pipeline.object_store import AT_ONCE, store_of
from pipeline.tables.added import added

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pipeline.state import State
    from pipeline.tables.added import Told
    from pipeline.tables.table import Table

NOTE = "published"
NOTHING = {"batch": -1, "files": {}, "done": True}


def note_of(topic: str | None) -> str:
    """The name of the note of an archive, or of one topic of many: none is too long for a file."""
    if topic is None:
        return NOTE
    return f"{NOTE}-{hashlib.sha256(topic.encode()).hexdigest()[:32]}"


class Publication:
    """Moves staged files to their places. One at a time for a folder: the state's lock sees to it.

    `finish` comes first, once, before any task stages a file.
    """

    def __init__(
        self,
        folder: Location,
        state: State,
        table: Table | None = None,
        coverage: Coverage | None = None,
        *,
        topic: str | None = None,
        note: str | None = None,
    ) -> None:
        """Of one `topic`, where each has a folder and a note of its own; or noted under the name
        `note`."""
        self._folder = folder
        self._state = state
        self._topic = topic
        self._note = note or note_of(topic)
        self.table = table
        self.coverage = coverage
        """Of a table: what it has. None while it is not known."""
        self._store = store_of(folder)
        self._ends: dict[str, int] | None = None
        """Of each partition in the folder, once it is needed: the offset after its last one."""

    @property
    def last(self) -> int:
        """The last micro-batch that is part of the archive; -1 before the first."""
        noted = self._state.read(self._note)
        return int(noted["batch"]) if noted is not None else -1

    def finish(self) -> None:
        """Publish what was noted and is not done; clear away what other runs have staged.

        Raises ForeignState if a file that was noted is neither staged nor in its place, Refused.
        """
        # Before anything is cleared away that another run was about to publish.
        noted = self._state.take_over(self._note, NOTHING)
        with refusing(f"write to {self._folder.path}"):
            self._finish(noted)
            self._clear(self._folder.under(STAGING))

    def publish(
        self,
        batch_id: int,
        files: Mapping[str, str],
        covered: Sequence[Covered] = (),
        told: Mapping[str, Told] | None = None,
    ) -> None:
        """The micro-batch is to have these files, below the folder: their names, and what they are
        staged as. `covered` are all offsets that it was to have. `told` is what tasks tell of files
        for a table, by name; those of others are opened.

        Does nothing for one that is published. Raises Refused if the folder has such offsets, if a
        file was staged where only its task can see it, or if nothing can be written.
        """
        with refusing(f"write to {self._folder.path}"):
            noted = self._state.read(self._note)
            if noted is not None and noted["batch"] >= batch_id:
                self._finish(noted)
                self._clear(self._folder.under(STAGING, str(batch_id)))
                return
            self._refuse_to_overlap(covered)
            self._see_all(batch_id, files)
            if self._folder.is_local and files:
                # The files themselves were synced as they were written; this is for their names.
                staging = self._folder.under(STAGING)
                for place in (staging.under(str(batch_id)), staging, self._folder):
                    sync(place.path)
            self._state.keep(batch_id)
            self._write(batch_id, dict(files), covered, done=False)
            self._publish(batch_id, files, covered, told or {})

    def shares(
        self, done: Sequence[Mapping[str, Any]]
    ) -> Iterable[tuple[Publication, Sequence[Mapping[str, Any]]]]:
        """Which part of a micro-batch's facts is published by whom: all of it, here."""
        return [(self, done)]

    def _write(
        self, batch_id: int, files: Mapping[str, str], covered: Sequence[Covered], *, done: bool
    ) -> None:
        told = {"batch": batch_id, "files": files, "covered": covered, "done": done}
        self._state.write(
            self._note, told if self._topic is None else {**told, "topic": self._topic}
        )

    def _finish(self, noted: Mapping[str, Any] | None) -> None:
        if noted is not None and not noted["done"]:
            covered = [Covered(*one) for one in noted.get("covered", ())]
            self._publish(noted["batch"], noted["files"], covered, {})

    def _publish(
        self,
        batch_id: int,
        files: Mapping[str, str],
        covered: Sequence[Covered],
        told: Mapping[str, Told],
    ) -> None:
        staging = self._folder.under(STAGING, str(batch_id))
        # What a table has taken others may have rewritten since, and removed.
        left = {} if self.table is not None and self.table.has(batch_id) else files
        self._move_all(staging, left)
        if self.table is not None:
            by_path = {self._folder.under(name).path: one for name, one in told.items()}
            self.table.add(batch_id, added([self._folder.under(name) for name in left], by_path))
        if self.coverage is not None:
            self.coverage.add(batch_id, covered)
        if self._ends is not None:
            self._reach(covered)
        self._write(batch_id, {}, (), done=True)
        self._clear(staging)

    def _move_all(self, staging: Location, files: Mapping[str, str]) -> None:
        folders = {name.rpartition("/")[0] for name in files}
        for folder in folders - {""}:
            self._folder.under(folder).make()
        moves = [
            (staging.under(staged), self._folder.under(name)) for name, staged in files.items()
        ]
        if self._store is None:
            for staged, final in moves:
                self._move(staged, final)
        else:
            with ThreadPoolExecutor(AT_ONCE) as pool:
                list(pool.map(lambda move: self._copy(*move), moves))
        if self._folder.is_local and files:
            for folder in folders:
                sync(self._folder.under(folder).path)

    def _clear(self, staging: Location) -> None:
        if self._store is not None:
            self._store.clear(staging)
        elif staging.exists():
            staging.filesystem.delete_dir(staging.path)

    def _move(self, staged: Location, final: Location) -> None:
        if staged.exists():
            staged.filesystem.move(staged.path, final.path)
        elif not final.exists():
            raise _lost(staged, final)

    def _copy(self, staged: Location, final: Location) -> None:
        assert self._store is not None
        try:
            self._store.copy(staged, final)
        except FileNotFoundError:
            if not self._store.exists(final):
                raise _lost(staged, final) from None

    def _see_all(self, batch_id: int, files: Mapping[str, str]) -> None:
        """Before it is noted that they can be published. A store is the same to everybody."""
        if self._store is not None:
            return
        staging = self._folder.under(STAGING, str(batch_id))
        expect_visible(staging, files.values())

    def _refuse_to_overlap(self, covered: Sequence[Covered]) -> None:
        """The same offsets are planned again when a topic was deleted and made anew."""
        if self._ends is None:
            self._ends = self._known_ends()
        for one in covered:
            partition = f"{one.topic}-{one.partition}"
            if one.start < self._ends.get(partition, 0):
                raise Refused(
                    f"{self._folder.path} has {partition} up to offset "
                    f"{self._ends[partition] - 1:,} already, and was to get offsets "
                    f"{one.start:,} to {one.end - 1:,}: the topic has been made anew, or its "
                    "offsets set back; archive it to another folder, with another state"
                )

    def _known_ends(self) -> dict[str, int]:
        if self.coverage is not None:
            ends = self.coverage.ends().items()
            return {f"{topic}-{partition}": end for (topic, partition), end in ends}
        found: dict[str, int] = {}
        for name, named in names_in(self._folder).items():
            # A name that was too long is in the footer.
            topic = named.topic or describe(self._folder.under(name)).topic
            partition = f"{topic}-{named.partition}"
            found[partition] = max(named.end, found.get(partition, 0))
        return found

    def _reach(self, covered: Iterable[Covered]) -> None:
        assert self._ends is not None
        for one in covered:
            partition = f"{one.topic}-{one.partition}"
            self._ends[partition] = max(one.end, self._ends.get(partition, 0))


def expect_visible(staging: Location, names: Iterable[str]) -> None:
    """Raises Refused for a file that only the task which has staged it can see."""
    places = [staging.under(name).path for name in names]
    for info in staging.filesystem.get_file_info(places):
        if info.type == fs.FileType.NotFound:
            raise Refused(
                f"{info.path} was written by a task and is not to be seen here: the folder has "
                "to be one that all executors and the driver share"
            )


def _lost(staged: Location, final: Location) -> ForeignState:
    return ForeignState(
        f"{final.path} was about to be published when the last run stopped, and is not to be "
        f"found, nor {staged.path}: the archive is not whole"
    )
