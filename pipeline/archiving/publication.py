"""A micro-batch's files become part of an archive: all of them, once, whatever is cut off when.

Tasks write into `_staging/<micro-batch>/`. What is to be moved where is noted in the state before
the first file is, and that note is the moment from which the micro-batch is part of the archive:
a run that finds one unfinished finishes it, before anything else, from the files that were staged.
It needs nothing from the broker for it, which may have deleted the offsets in the meantime, and
it does not matter whether Spark would cut the same offsets into the same ranges again.

    _archive.json     in the archive's folder: the state that it belongs to, and its shape
    published.json    in the state: the last micro-batch, its files, and whether it is done
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pyarrow import fs

from pipeline.archiving.archive_files import FORMAT, OWNER, STAGING, STATE, names_in, parse_name
from pipeline.errors import ForeignState, Refused
from pipeline.filesystem import Location, refusing, sync, write_whole

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pipeline.archiving.tables import Table
    from pipeline.state import State

NOTE = "published"


def owner_of(folder: Location) -> dict[str, Any] | None:
    """The content of `_archive.json`; None for a folder that is not there, or has nothing in it.

    Raises ForeignState for a folder with other files, or with an archive that nobody can add to, or
    only a newer version.
    """
    selector = fs.FileSelector(folder.path, allow_not_found=True)
    names = {info.base_name for info in folder.filesystem.get_file_info(selector)}
    if OWNER not in names:
        others = sorted(name for name in names if name != STATE and not name.startswith("."))
        if others:
            raise ForeignState(
                f"{folder.path} has other files in it ({others[0]}): name an empty folder or a new "
                "one, or the folder of an archive"
            )
        return None
    place = folder.under(OWNER)
    with place.filesystem.open_input_stream(place.path) as stream:
        try:
            told = dict(json.loads(stream.read()))
        except (ValueError, TypeError) as failure:
            raise ForeignState(f"{place.path} is damaged: {failure}") from None
    if told.get("format") != FORMAT:
        raise ForeignState(
            f"{folder.path} is an archive of format {told.get('format')}, and this version writes "
            f"format {FORMAT}: add to it with the version that made it, or begin another one"
        )
    return told


def claim(folder: Location, owner: Mapping[str, Any]) -> None:
    """Make the folder the archive of this owner, unless it is one already.

    Raises Refused, and what `owner_of` does.
    """
    with refusing(f"write to {folder.path}"):
        if owner_of(folder) is None:
            folder.make()
            write_whole(folder.under(OWNER), json.dumps(owner, indent=1, sort_keys=True).encode())


class Publication:
    """Moves staged files to their places. One at a time for a folder: the state's lock sees to it.

    `finish` comes first, once, before any task stages a file.
    """

    def __init__(self, folder: Location, state: State, table: Table | None = None) -> None:
        self._folder = folder
        self._state = state
        self._table = table
        self._ends: dict[str, int] | None = None
        """Of each partition in the folder, once it is needed: the offset after its last one."""

    @property
    def last(self) -> int:
        """The last micro-batch that is part of the archive; -1 before the first."""
        noted = self._state.read(NOTE)
        return int(noted["batch"]) if noted is not None else -1

    def finish(self) -> None:
        """Publish what was noted and is not done; clear away what other runs have staged.

        Raises ForeignState if a file that was noted is neither staged nor in its place, Refused.
        """
        noted = self._state.read(NOTE)
        with refusing(f"write to {self._folder.path}"):
            if noted is not None and not noted["done"]:
                self._publish(noted["batch"], noted["files"])
            self._clear(self._folder.under(STAGING))

    def publish(self, batch_id: int, files: Mapping[str, str]) -> None:
        """The micro-batch is to have these files: their names, and what they are staged as.

        Does nothing for one that is published. Raises Refused if the folder has such offsets, if a
        file was staged where only its task can see it, or if nothing can be written.
        """
        with refusing(f"write to {self._folder.path}"):
            self._publish_once(batch_id, files)

    def _publish_once(self, batch_id: int, files: Mapping[str, str]) -> None:
        noted = self._state.read(NOTE)
        if noted is not None and noted["batch"] >= batch_id:
            if not noted["done"]:
                self._publish(noted["batch"], noted["files"])
            self._clear(self._folder.under(STAGING, str(batch_id)))
            return
        self._refuse_to_overlap(files)
        self._see_all(batch_id, files)
        if self._folder.is_local and files:
            # The files themselves were synced as they were written; this is for their names.
            staging = self._folder.under(STAGING)
            for place in (staging.under(str(batch_id)), staging, self._folder):
                sync(place.path)
        self._state.keep(batch_id)
        self._state.write(NOTE, {"batch": batch_id, "files": dict(files), "done": False})
        self._reach(files)
        self._publish(batch_id, files)

    def _publish(self, batch_id: int, files: Mapping[str, str]) -> None:
        staging = self._folder.under(STAGING, str(batch_id))
        for name, staged in files.items():
            self._move(staging.under(staged), self._folder.under(name))
        if self._folder.is_local and files:
            sync(self._folder.path)
        if self._table is not None and files:
            self._table.add(batch_id, [self._folder.under(name) for name in files])
        self._state.write(NOTE, {"batch": batch_id, "files": {}, "done": True})
        self._clear(staging)

    @staticmethod
    def _clear(staging: Location) -> None:
        if staging.exists():
            staging.filesystem.delete_dir(staging.path)

    def _move(self, staged: Location, final: Location) -> None:
        if staged.exists():
            staged.filesystem.move(staged.path, final.path)
        elif not final.exists():
            raise ForeignState(
                f"{final.path} was about to be published when the last run stopped, and is not to "
                f"be found, nor {staged.path}: the archive is not whole"
            )

    def _see_all(self, batch_id: int, files: Mapping[str, str]) -> None:
        """Before it is noted that they can be published."""
        staging = self._folder.under(STAGING, str(batch_id))
        places = [staging.under(staged).path for staged in files.values()]
        for info in self._folder.filesystem.get_file_info(places):
            if info.type == fs.FileType.NotFound:
                raise Refused(
                    f"{info.path} was written by a task and is not to be seen here: the folder has "
                    "to be one that all executors and the driver share"
                )

    def _refuse_to_overlap(self, files: Mapping[str, str]) -> None:
        """The same offsets are planned again when a topic was deleted and made anew."""
        if self._ends is None:
            self._ends = {}
            self._reach(names_in(self._folder))
        for name in files:
            partition, start, _ = _offsets_of(name)
            if start < self._ends.get(partition, 0):
                raise Refused(
                    f"{self._folder.path} has {partition} up to offset "
                    f"{self._ends[partition] - 1:,} already, and was to get {name}: the topic has "
                    "been made anew, or its offsets set back; archive it to another folder, with "
                    "another state"
                )

    def _reach(self, names: Iterable[str]) -> None:
        assert self._ends is not None
        for name in names:
            partition, _, end = _offsets_of(name)
            self._ends[partition] = max(end, self._ends.get(partition, 0))


def _offsets_of(name: str) -> tuple[str, int, int]:
    """The partition as a file's name has it, and the offsets."""
    named = parse_name(name)
    assert named is not None
    return name.rsplit("-", 2)[0], named.start, named.end
