"""A transaction that Kafka had decided to commit and had not told the partitions of.

No Kafka can be killed at that moment, so its decision is written by hand: the last record of the
transaction, with another status, behind the others. storage.md 9 and 16.5 have the bytes.

For 3.9 alone: of two starts on such a directory, 4.3.1 ends the transaction at one, whether another
broker has seen the directory or not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.records.batch import Batch
from protocol.records.builder import build_batch
from protocol.records.walk import walk
from storage.layout import CLEAN_SHUTDOWN

if TYPE_CHECKING:
    from pathlib import Path

TOPIC = "__transaction_state"
#: Of the value, in versions 0 and 1: version, producer id, epoch and timeout come before it.
STATUS_AT = 2 + 8 + 2 + 4
ONGOING, PREPARE_COMMIT = 1, 2


def prepare(logs: Path, transactional_id: str) -> None:
    """Make the open transaction of this id a prepared one, in the directory of a killed Kafka."""
    assert not (logs / CLEAN_SHUTDOWN).exists()
    key = b"\x00\x00" + len(transactional_id).to_bytes(2, "big") + transactional_id.encode()
    for path in sorted(logs.glob(f"{TOPIC}-*/*.log")):
        whole = memoryview(path.read_bytes())
        batches = [Batch(whole[at : at + size]) for at, size, _ in walk(whole)]
        found = [
            record
            for one in batches
            for record in one.records()
            if record.key is not None and bytes(record.key) == key
        ]
        if found:
            value = bytearray(bytes(found[-1].value or b""))
            assert value[STATUS_AT] == ONGOING
            value[STATUS_AT] = PREPARE_COMMIT
            decision = build_batch(
                [(found[-1].timestamp_ms, key, bytes(value), ())],
                base_offset=batches[-1].last_offset + 1,
                leader_epoch=batches[-1].leader_epoch,
            )
            with path.open("ab") as log:
                log.write(decision)
            return
    raise AssertionError(f"no transaction {transactional_id}")
