"""One case: a copy of a directory, one flipped bit, two runs of a broker, and what clients find.

The bit is flipped while no broker runs, or under one that has not read anything yet, or under one
that has read everything. Then all is read, a batch is appended, the broker is stopped or killed,
and the next one is asked for everything again.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import shutil
from typing import TYPE_CHECKING, NamedTuple

from tests.damage.callers import NoAnswer, entries_of
from tests.damage.directories import SERVED
from tests.damage.examination import Examination, Finding
from tests.damage.flips import Flip, choose
from tests.damage.forked_broker import ForkedBroker, Refused
from tests.damage.ledger import Batch, Ledger
from tests.support.compacted import keyed
from tests.support.old_sets import seen
from tests.support.server_process import ServerFailed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.damage.directories import Directory
    from tests.damage.ledger import Place

MOMENTS = {"not running": 2, "running, nothing read": 1, "running, all read": 1}
"""When the bit is flipped, and how often."""

MAY_REFUSE = (
    "meta.properties", "metadata log", "metadata snapshot", "beside the metadata log",
)  # fmt: skip
"""Damage to these may keep a broker from starting, if it says so in words: what they say is nowhere
else, or to go on without it would lose more."""


KINDS = (
    "START FAILED", "START REFUSED", "TRACEBACK", "NO ANSWER", "TOPIC", "LOG END", "LOG START",
    "APPENDED AT", "WRONG OFFSET", "WRONG BYTE", "WRONG EPOCH", "SKIPPED", "GOOD BATCH SPOILT",
    "UNREADABLE", "STALLED", "STORED TWICE", "COMMITTED READ", "OFFSETS", "TIME",
)  # fmt: skip
"""What can be found; a kind explains those after it."""

NOTHING = Flip("nothing", "", 0, 0)
"""What is damaged before the bit is flipped."""


class Outcome(NamedTuple):
    """The result of a case. `notes` are no faults: an append refused, a start refused in words."""

    number: int
    end: str
    moment: str
    flip: Flip
    notes: list[str]
    findings: list[Finding]

    @property
    def worst(self) -> str:
        """The kind of the finding that most likely explains the others."""
        return min((finding.kind for finding in self.findings), key=KINDS.index)

    def __str__(self) -> str:
        return f"{self.flip}; {self.end}, {self.moment}"


class Case:
    def __init__(
        self,
        number: int,
        directory: Directory,
        folder: Path,
        rng: random.Random,
        flip: Flip | None = None,
    ) -> None:
        self._number = number
        self._directory = directory
        self._data = folder / "data"
        self._folder = folder
        self._rng = rng
        (self._moment,) = rng.choices(list(MOMENTS), list(MOMENTS.values()))
        self._moment = os.environ.get("TEST_FLIP_MOMENT", self._moment)
        self._flip = flip or choose(directory, rng)
        self._ledgers: dict[Place, Ledger] = dict(directory.ledgers)
        self._notes: list[str] = []
        self._findings: list[Finding] = []
        self._runs = 0
        self._unclean = directory.end != "stopped"

    def run(self) -> Outcome:
        shutil.rmtree(self._folder, ignore_errors=True)
        shutil.copytree(self._directory.path, self._data)
        try:
            if self._moment == "not running":
                self._flip.apply(self._data)
                with self._broker() as broker:
                    self._look(broker)
                    self._append(broker)
                    self._end(broker)
            else:
                with self._broker() as broker:
                    if self._moment == "running, all read":
                        self._look(broker, NOTHING)
                    self._flip.apply(self._data)
                    self._look(broker)
                    self._end(broker)
            with self._broker() as broker:
                self._look(broker)
                self._append(broker)
        except Refused as refusal:
            if self._flip.kind in MAY_REFUSE:
                self._notes.append(f"REFUSED: {refusal}")
            else:
                self._find("START REFUSED", str(refusal))
        except ServerFailed as error:
            self._find("START FAILED", str(error).rstrip().rpartition("\n")[2])
        self._look_for_tracebacks()
        return Outcome(
            self._number,
            self._directory.end,
            self._moment,
            self._flip,
            self._notes,
            self._findings,
        )

    @contextlib.contextmanager
    def _broker(self) -> Iterator[ForkedBroker]:
        self._runs += 1
        output = self._folder / f"output-{self._runs}"
        with ForkedBroker(self._data, output, settings=SERVED) as broker:
            yield broker

    def _find(self, kind: str, text: str) -> None:
        self._findings.append(Finding(kind, text))

    def _look(self, broker: ForkedBroker, flip: Flip | None = None) -> None:
        """Read everything; of the second and later looks only kinds that are new are told."""
        caller = broker.caller()
        known = {finding.kind for finding in self._findings}
        with self._answers():
            self._note_cut_tail(broker)
            self._note_taken_epoch(broker)
            examination = Examination(caller, self._directory, flip or self._flip)
            try:
                examination.run(self._ledgers)
            finally:
                where = f"run {self._runs}, "
                self._findings += [
                    Finding(one.kind, where + one.text)
                    for one in examination.findings
                    if one.kind not in known
                ]

    @contextlib.contextmanager
    def _answers(self) -> Iterator[None]:
        try:
            yield
        except NoAnswer as error:
            self._find("NO ANSWER", f"run {self._runs}, {error}")

    def _note_cut_tail(self, broker: ForkedBroker) -> None:
        """A last batch that a crash may have torn is cut off at a start after one; nobody can tell
        a flipped bit from that where no recovery point has passed it."""
        place, index = self._flip.place, self._flip.batch
        if not self._unclean or place is None or index is None:
            return
        ledger = self._ledgers[place]
        if index != len(ledger.batches) - 1:
            return
        end = broker.caller().offset(place[0], -1, partition=place[1])
        if (end.error_code, end.offset) == (0, ledger.batches[index].base):
            self._notes.append("TAIL CUT")
            self._ledgers[place] = ledger.cut(index)
            self._flip = self._flip._replace(batch=None)

    def _note_taken_epoch(self, broker: ForkedBroker) -> None:
        """A leader epoch of a log's last batch is believed after a crash if it may be that of a
        broker which died before the epoch's checkpoint was synced (docs/behaviour.md, "Not
        seen"): nothing behind the batch says otherwise."""
        place, index = self._flip.place, self._flip.batch
        if not self._unclean or self._flip.field != "leader epoch" or place is None:
            return
        if self._runs == 1 and self._moment != "not running":
            return  # this broker started on what was right
        ledger = self._ledgers[place]
        if index is None or index != len(ledger.batches) - 1:
            return
        last = ledger.batches[index]
        raw = bytearray(last.raw)
        raw[self._flip.position - last.position] ^= 1 << self._flip.bit
        if broker.caller().read(*place, last.base).data == raw:
            self._notes.append("EPOCH TAKEN")
            self._ledgers[place] = Ledger(
                [*ledger.batches[:index], last._replace(raw=bytes(raw))], ledger.start
            )
            self._flip = self._flip._replace(batch=None)

    def _append(self, broker: ForkedBroker) -> None:
        """Produce goes on behind the end, or is refused; and what is sent again is known."""
        place = self._flip.place
        if place is None or place[0].startswith("__") or place[0] == "transactions":
            place = "plain", 0
        caller, ledger = broker.caller(), self._ledgers[place]
        with self._answers():
            if caller.end_offset(*place) != ledger.end:
                return  # that has been found
            if place[0] == "idempotent" and self._knows_resent(ledger):
                caller.produce(place[0], self._directory.resent, version=9)
                end = caller.end_offset(place[0])
                if end > ledger.end:
                    self._find("STORED TWICE", f"run {self._runs}: the end is {end}")
                    return
            key, value = b"appended", b"%d" % self._runs
            entry = caller.produce(place[0], keyed((key, value)), version=9)
            if entry.error_code:
                self._notes.append(f"APPEND REFUSED: error {entry.error_code}")
                return
            if entry.base_offset != ledger.end:
                self._find("APPENDED AT", f"{entry.base_offset}, not {ledger.end}")
                return
            fetched = caller.read(*place, entry.base_offset)
            raw = next((one.raw for one in entries_of(fetched.data)), b"")
            records = tuple(seen(raw))
            if [(one.offset, one.key, one.value) for one in records] != [(ledger.end, key, value)]:
                self._find("WRONG BYTE", f"{records} was appended, error {fetched.error_code}")
                return
            batch = Batch("", 0, raw, ledger.end, ledger.end, records)
            self._ledgers[place] = Ledger([*ledger.batches, batch], ledger.start)

    def _knows_resent(self, ledger: Ledger) -> bool:
        """Whether the batch that a producer sends again is in the log, and whole."""
        sent = self._directory.ledgers["idempotent", 0].batches[-1]
        kept = any(batch.raw == sent.raw for batch in ledger.batches)
        return kept and (self._flip.batch is None or ledger.batches[self._flip.batch] is not sent)

    def _end(self, broker: ForkedBroker) -> None:
        if self._rng.random() < 0.5:
            broker.stop()
            self._unclean = False
        else:
            broker.kill()
            self._unclean = True

    def _look_for_tracebacks(self) -> None:
        for path in sorted(self._folder.glob("output-*")):
            text = path.read_text(errors="replace")
            if "Traceback" in text:
                last = re.findall(
                    r"^\w[\w.]*(?:Error|Exception|Batch|File)\b.*$", text, re.MULTILINE
                )
                self._find("TRACEBACK", f"{path.name}: {(last or ['?'])[-1][:200]}")
