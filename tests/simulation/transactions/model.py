"""What clients were told of their transactions: what a reader of committed records may see."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

Place = tuple[str, int]
"""Topic and partition."""


class Status(Enum):
    """Of a transaction, by all that its client knows.

    OPEN       nobody has asked for a commit: nothing of it may be seen
    ASKED      a commit was asked for and not answered: all of it is seen, or nothing
    COMMITTED  it was answered, or seen: all of it is seen, for good
    ABORTED    nothing of it is seen, for good
    """

    OPEN = "open"
    ASKED = "asked for"
    COMMITTED = "committed"
    ABORTED = "aborted"


class Written(NamedTuple):
    """One record that a transaction wrote and had acknowledged."""

    place: Place
    offset: int
    value: bytes


class Transaction:
    """`number` counts all of them; it is in each of the records, and is the offset committed."""

    def __init__(self, number: int, transactional_id: str) -> None:
        self.number = number
        self.transactional_id = transactional_id
        self.status = Status.OPEN
        self.written: list[Written] = []
        """What was acknowledged."""
        self.offset_place: Place | None = None
        """The partition with its acknowledged offset, if it committed one."""
        self.is_kept = False
        """Whether another instance has it in hand than the one that began it."""
        self.has_sent_offset = False
        """Whether an offset was sent, acknowledged or not."""
        self.sent = 0
        """Records that were sent, acknowledged or not."""

    def value(self) -> bytes:
        """The next record."""
        self.sent += 1
        return b"%d:%d" % (self.number, self.sent)

    def __repr__(self) -> str:
        return f"{self.transactional_id}#{self.number} ({self.status.value})"


class Model:
    """All transactions, by number."""

    def __init__(self) -> None:
        self.transactions: dict[int, Transaction] = {}

    def begin(self, transactional_id: str) -> Transaction:
        new = Transaction(len(self.transactions) + 1, transactional_id)
        self.transactions[new.number] = new
        return new

    def committed_offset(self, transactional_id: str) -> int | None:
        """The offset of the id's group: that of the last committed transaction that had one. None
        if it is not known, because of one that may have been committed."""
        found: int | None = -1
        for one in self.transactions.values():
            if one.transactional_id != transactional_id or not one.has_sent_offset:
                continue
            if one.status is Status.ASKED:
                return None
            if one.status is Status.COMMITTED:
                # Who keeps a transaction does not know what its owner was about to be told.
                found = None if one.offset_place is None else one.number
        return found
