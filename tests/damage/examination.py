"""Reads everything as a plain client does and compares it with the ledger.

At most the damaged batch may be missing, and then with an error. Findings are of these kinds:

    WRONG OFFSET       records with right checksums under another offset
    WRONG EPOCH        a batch with another leader epoch
    WRONG BYTE         right checksums over other bytes than were acknowledged
    GOOD BATCH SPOILT  bytes that no client takes, in place of a batch that is not damaged
    UNREADABLE         an error for a batch that is not damaged
    SKIPPED            a batch left out without an error
    STALLED            nothing and no error, where there are records
    LOG END, LOG START moved
    TIME               a search by time found another record, or an error, not for the damaged batch
    COMMITTED READ     a reader of committed records got others
    OFFSETS            a group's committed offset is none that was committed last
    TOPIC              a topic is gone or has another id
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tests.damage.callers import Spoiled, entries_of
from tests.support.old_sets import seen

if TYPE_CHECKING:
    from tests.damage.callers import PlainCaller, RawEntry
    from tests.damage.directories import Directory
    from tests.damage.flips import Flip
    from tests.damage.ledger import Ledger, Place

EARLIEST, LATEST = -2, -1
SPARED_MAX = 3
"""Findings of one kind that are told of one examination."""
OLD_VERSIONS = (1, 3)
"""Fetches whose clients know formats 0, and 0 and 1, only."""


class Finding(NamedTuple):
    kind: str
    text: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}"


class Examination:
    """One look at a running broker. `damaged` is the index of the batch whose bit was flipped, in
    the ledger of its partition, None for all others."""

    def __init__(self, caller: PlainCaller, directory: Directory, flip: Flip) -> None:
        self.findings: list[Finding] = []
        self._caller = caller
        self._directory = directory
        self._flip = flip

    def run(self, ledgers: dict[Place, Ledger]) -> list[Finding]:
        self._topics()
        for place, ledger in ledgers.items():
            damaged = self._flip.batch if place == self._flip.place else None
            if not self._bounds(place, ledger, damaged):
                continue
            self._read_through(place, ledger, damaged)
            if place == self._flip.place:
                self._read_each(place, ledger, damaged)
                self._search(place, ledger, damaged)
                self._read_converted(place, ledger, damaged)
        self._read_committed(ledgers)
        self._groups()
        return self.findings

    def _find(self, kind: str, text: str) -> None:
        if sum(finding.kind == kind for finding in self.findings) < SPARED_MAX:
            self.findings.append(Finding(kind, text))

    def _topics(self) -> None:
        for name, topic_id in self._directory.topic_ids.items():
            found = self._caller.describe(name)
            if found.error_code or found.topic_id != topic_id:
                self._find("TOPIC", f"{name}: error {found.error_code}, id {found.topic_id.hex()}")

    def _bounds(self, place: Place, ledger: Ledger, damaged: int | None) -> bool:
        """Whether the partition is there and goes as far as it should."""
        topic, partition = place
        end = self._caller.offset(topic, LATEST, partition=partition)
        if end.error_code:
            self._find("UNREADABLE", f"{topic}-{partition}: error {end.error_code} for its end")
            return False
        if end.offset != ledger.end:
            self._find("LOG END", f"{topic}-{partition}: {end.offset}, not {ledger.end}")
        start = self._caller.offset(topic, EARLIEST, partition=partition)
        if start.error_code or start.offset != ledger.start:
            self._find(
                "LOG START",
                f"{topic}-{partition}: {start.offset} (error {start.error_code}), "
                f"not {ledger.start}",
            )
        return True

    # Batches as they are stored

    def _read_through(self, place: Place, ledger: Ledger, damaged: int | None) -> None:
        """As a consumer does that goes past what it cannot read."""
        index = ledger.first_at(ledger.start)
        while index < len(ledger.batches):
            index += max(self._read_at(place, ledger, index, damaged), 1)

    def _read_each(self, place: Place, ledger: Ledger, damaged: int | None) -> None:
        for index in range(ledger.first_at(ledger.start), len(ledger.batches)):
            self._read_at(place, ledger, index, damaged)

    def _read_at(self, place: Place, ledger: Ledger, index: int, damaged: int | None) -> int:
        """Fetch from where a batch begins; how many batches came as they should."""
        first = ledger.batches[index]
        offset = max(first.base, ledger.start)
        where = f"{place[0]}-{place[1]} at {offset}"
        fetched = self._caller.read(*place, offset)
        if fetched.error_code:
            if index != damaged:
                self._find("UNREADABLE", f"{where}: error {fetched.error_code}")
            return 0
        if not fetched.data:
            self._find("STALLED", where)
            return 0
        right = 0
        try:
            for right, entry in enumerate(entries_of(fetched.data)):
                if index + right == len(ledger.batches):
                    self._find("LOG END", f"{where}: a batch of {entry.offset} behind the end")
                    return right
                if entry.raw != ledger.batches[index + right].raw:
                    self._compare(where, entry, ledger, index + right)
                    return right
            return right + 1
        except Spoiled as error:
            # The entries before it were right, and it is in the place of the next one.
            right = self._whole(fetched.data, ledger, index)
            if index + right != damaged:
                self._find("GOOD BATCH SPOILT", f"{where}, batch {right}: {error}")
            return right

    def _whole(self, data: bytes, ledger: Ledger, index: int) -> int:
        """How many batches of the ledger the data begin with."""
        position = right = 0
        for batch in ledger.batches[index:]:
            if data[position : position + len(batch.raw)] != batch.raw:
                break
            position += len(batch.raw)
            right += 1
        return right

    def _compare(self, where: str, entry: RawEntry, ledger: Ledger, index: int) -> None:
        """What is wrong with an entry whose checksum is right."""
        wanted = ledger.batches[index]
        if any(entry.raw == batch.raw for batch in ledger.batches):
            self._find("SKIPPED", f"{where}: {entry.offset} in place of {wanted.base}")
        elif entry.raw[17:] != wanted.raw[17:]:
            self._find("WRONG BYTE", f"{where}: {entry.raw[:61].hex()}")
        elif entry.raw[:8] != wanted.raw[:8]:
            self._find("WRONG OFFSET", f"{where}: {entry.offset}, not {wanted.base}")
        else:
            self._find("WRONG EPOCH", f"{where}: {entry.epoch}")

    # By time, by older clients, by readers of committed records

    def _search(self, place: Place, ledger: Ledger, damaged: int | None) -> None:
        topic, partition = place
        hidden = set() if damaged is None else set(ledger.batches[damaged].records)
        times = sorted({one.timestamp_ms for one in ledger.records() if one.timestamp_ms >= 0})
        for time_ms in times[:: max(len(times) // 12, 1)]:
            wanted = ledger.first_since(time_ms)
            found = self._caller.offset(topic, time_ms, partition=partition)
            assert wanted is not None
            if wanted in hidden:
                continue  # an error, or a later record: it cannot be read anyway
            if (found.error_code, found.offset) != (0, wanted.offset):
                self._find(
                    "TIME",
                    f"{topic}-{partition}: {time_ms} is at {found.offset} "
                    f"(error {found.error_code}), not {wanted.offset}",
                )

    def _read_converted(self, place: Place, ledger: Ledger, damaged: int | None) -> None:
        """What older clients get of the damaged batch and of its neighbours."""
        if damaged is None:
            return
        records = {record.offset: record for record in ledger.records()}
        first = max(damaged - 1, ledger.first_at(ledger.start))
        for index in range(first, min(damaged + 2, len(ledger.batches))):
            if _is_control(ledger.batches[index].raw):
                continue  # not for them: what comes first for them is the batch behind it
            offset = max(ledger.batches[index].base, ledger.start)
            for version in OLD_VERSIONS:
                fetched = self._caller.read(*place, offset, version=version)
                where = f"{place[0]}-{place[1]} at {offset}, Fetch v{version}"
                if fetched.error_code:
                    if index != damaged:
                        self._find("UNREADABLE", f"{where}: error {fetched.error_code}")
                    continue
                try:
                    found = [one for part in entries_of(fetched.data) for one in seen(part.raw)]
                except Spoiled:
                    continue
                for record in found:
                    known = records.get(record.offset)
                    if record.offset < offset:
                        continue
                    if known is None or (known.key, known.value) != (record.key, record.value):
                        self._find("WRONG BYTE", f"{where}: {record} for {known}")
                    break

    def _read_committed(self, ledgers: dict[Place, Ledger]) -> None:
        """The offsets that remain of what readers of committed records get. What a damaged batch
        does to this log is not looked at: its transactions have no end."""
        place = "transactions", 0
        ledger = ledgers[place]
        if place == self._flip.place and self._flip.batch is not None:
            return
        offset, found = 0, set[int]()
        wanted = {record.offset for record in ledger.records()} - self._directory.aborted
        while offset < ledger.end:
            fetched = self._caller.read(*place, offset, committed=True)
            if fetched.error_code or not fetched.data:
                self._find("COMMITTED READ", f"error {fetched.error_code} or nothing at {offset}")
                return
            aborted = set[int]()
            waiting = sorted(fetched.aborted, key=lambda one: one[1])
            try:
                for entry in entries_of(fetched.data):
                    records = seen(entry.raw)
                    producer = int.from_bytes(entry.raw[43:51], "big")
                    attributes = int.from_bytes(entry.raw[21:23], "big")
                    last = entry.offset + int.from_bytes(entry.raw[23:27], "big")
                    while waiting and waiting[0][1] <= last:
                        producer_id, _ = waiting.pop(0)
                        aborted.add(producer_id)
                    if attributes & 0x20:
                        found |= {record.offset for record in records}
                        if records[0].key == b"\0\0\0\0":
                            aborted.discard(producer)
                    elif not (attributes & 0x10 and producer in aborted):
                        found |= {record.offset for record in records}
                    offset = last + 1
            except Spoiled as error:
                self._find("COMMITTED READ", f"{error}")
                return
        if found != wanted:
            self._find(
                "COMMITTED READ",
                f"aborted and seen: {sorted(found - wanted)[:5]}, "
                f"committed and not: {sorted(wanted - found)[:5]}",
            )

    # Groups

    def _groups(self) -> None:
        spoilt = self._flip.place is not None and self._flip.place[0] == "__consumer_offsets"
        for name, group in self._directory.groups.items():
            answer = self._caller.fetch_offsets(name, list(group.offsets))
            (found,) = answer.groups
            if found.error_code:
                self._find("OFFSETS", f"{name}: error {found.error_code}")
                continue
            offsets = self._caller.offsets_in(found.topics)
            for place, wanted in group.offsets.items():
                offset = offsets[place].offset
                earlier = group.earlier.get(place, set()) | {-1}
                if offset != wanted and not (spoilt and offset in earlier):
                    self._find("OFFSETS", f"{name}, {place[0]}: {offset}, not {wanted}")


def _is_control(raw: bytes) -> bool:
    """Whether these are the bytes of a control batch."""
    return raw[16] == 2 and bool(raw[22] & 0x20)
