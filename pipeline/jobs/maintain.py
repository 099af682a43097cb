"""Upkeep of an archive that is a table: small files put together, old ones deleted.

It runs where it is started, without Spark, by the packages of Delta and Iceberg. For as long it has
the archive's state, which two runs cannot have at once: what the last run began to publish is
finished first, so that no file is deleted that is about to be added.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from pipeline.archiving.archive_files import STAGING, STATE
from pipeline.archiving.folder import open_folder
from pipeline.archiving.layout import Layout
from pipeline.archiving.owner import catalog_of, owner_of
from pipeline.errors import ForeignState, WrongUse
from pipeline.filesystem import Location, locate, reason
from pipeline.jobs.archive import ID
from pipeline.outcome import BatchDone, Outcome, Tally
from pipeline.state import IDENTITY, State
from pipeline.tables.opening import open_table
from pipeline.tables.table import check_installed
from pipeline.tables.upkeep import Upkeep
from pipeline.values.values_job import noted_columns

if TYPE_CHECKING:
    from pipeline.outcome import Watch
    from pipeline.tables.table import Catalog

FILE_BYTES = 128 << 20
KEEP_S = 7 * 24 * 3600.0
"""As Delta's own: readers of older versions, and writers, have a week to be done."""


@dataclass(frozen=True)
class Maintain:
    """Upkeep of the archive in the folder `archive` (a local path or URI)."""

    archive: str
    catalog: Catalog | None = None
    """Of an Iceberg table; by default as archive noted it."""
    state: str | None = None
    """The archive's; by default in `_state` in its folder."""
    file_bytes: int = FILE_BYTES
    """Files smaller than that are put together up to it."""
    keep_s: float = KEEP_S
    """How long, in seconds, what is no longer part of the table can still be read."""
    dry_run: bool = False
    """Tell what would be done."""

    def check(self) -> None:
        """Raises WrongUse, NotInstalled, ForeignState (it is no archive of ours, or its state is
        elsewhere)."""
        if self.keep_s < 0:
            raise WrongUse(f"keep {self.keep_s} s is no time: give 0 or more")
        owner = self._owner(locate(self.archive))
        check_installed(owner["table"])
        self._check_state(State(locate(self._state_path)), owner)

    def run(self, spark: object = None, watch: Watch | None = None) -> Outcome:
        """Do it, and wait for the end. No Spark is needed. Raises Failure."""
        tally = Tally("maintain", watch)
        folder = locate(self.archive)
        owner = self._owner(folder)
        found = State(locate(self._state_path))
        identity = self._check_state(found, owner)
        with contextlib.closing(State.open(self._state_path, identity)) as state:
            catalog = self.catalog if self.catalog is not None else catalog_of(owner)
            batch = -1
            if self.dry_run or "mode" in owner:
                table = open_table(owner["table"], folder, state_id=owner["state"], catalog=catalog)
            else:
                layout = self._layout(owner, state)
                publication = open_folder(
                    folder, state, owner, layout, cluster=None, catalog=catalog
                )
                publication.finish()
                batch = publication.last
                assert publication.table is not None
                table = publication.table
            upkeep = Upkeep(
                self.file_bytes,
                datetime.now(UTC) - timedelta(seconds=self.keep_s),
                batch,
                folder.under(STAGING, "maintain"),
                self.dry_run,
            )
            began = time.monotonic()
            for number, done in enumerate(table.maintain(upkeep)):
                now = time.monotonic()
                tally.batch(BatchDone(number, 0, 0, now - began, details={done.step: done.count}))
                began = now
        return Maintained(tally.outcome(), self.dry_run)

    @property
    def _state_path(self) -> str:
        if self.state is not None:
            return self.state
        folder, question, rest = self.archive.partition("?")
        return f"{folder.rstrip('/')}/{STATE}{question}{rest}"

    def _owner(self, folder: Location) -> dict[str, Any]:
        try:
            owner = owner_of(folder, strict=False)
        except OSError as failure:
            raise WrongUse(f"cannot list {self.archive}: {reason(failure)}") from None
        if owner is None:
            raise ForeignState(f"{self.archive} is no archive: it has no _archive.json")
        if owner["table"] == "parquet":
            raise WrongUse(
                f"{self.archive} is plain files, which readers rely on by their names: only a "
                "table's are put together (archive --table)"
            )
        return owner

    def _layout(self, owner: dict[str, Any], state: State) -> Layout:
        layout = Layout(owner["shape"], owner["table"], owner.get("partition_by"))
        if owner["shape"] != "values":
            return layout
        columns = noted_columns(state)
        if columns is None:
            raise ForeignState(f"{self.archive} has no table yet: nothing has been archived there")
        return replace(layout, columns=columns)

    def _check_state(self, state: State, owner: dict[str, Any]) -> dict[str, str]:
        """Its identity."""
        noted, identity = state.read(ID), state.read(IDENTITY)
        if identity is None or noted is None or noted["id"] != owner["state"]:
            raise ForeignState(
                f"what is in {self._state_path} is not the state of {self.archive}: give it with "
                "--state"
            )
        return dict(identity)


class Maintained(Outcome):
    """What was done, or would be."""

    def __init__(self, outcome: Outcome, dry_run: bool) -> None:
        super().__init__("maintain", seconds=outcome.seconds, details=outcome.details)
        self.dry_run = dry_run

    def as_json(self) -> dict[str, Any]:
        """As Outcome has it, and whether it was a dry run."""
        return {**super().as_json(), "dry_run": self.dry_run}

    def line(self) -> str:
        """The closing line for people."""
        counts = [f"{count:,} {step}" for step, count in self.details.items() if count]
        would = "would be: " if self.dry_run and counts else ""
        return f"maintain: {would}{', '.join(counts) or 'nothing to do'} ({self.seconds:.1f} s)"


def maintain(archive: str, *, watch: Watch | None = None, **rest: Any) -> Outcome:
    """Maintain an archive, and wait for the end: what `Maintain` has as fields, by name.

    Raises Failure.
    """
    job = Maintain(archive, **rest)
    job.check()
    return job.run(watch=watch)
