"""`quorum-state`: the epoch of the metadata log's leader, and who that is.

One line of JSON beside the metadata log. It is written before the first batch of an epoch, so that
an epoch is never begun twice. What if it is lost: the epochs in the log say the same, but for an
epoch in which nothing was written.

`triglotSince` is ours: the first of the epochs up to this one in which no other broker has led.
Apache Kafka passes over it, and its own file, which it writes at every start before it touches
anything else, has none. So that field tells whether Kafka has run here since we did.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from storage.identity import ZERO_UUID, uuid_text
from storage.metadata.snapshot_names import LARGEST_EPOCH

if TYPE_CHECKING:
    from storage.filesystem import Filesystem

QUORUM_STATE = "quorum-state"
SINCE = "triglotSince"
STATIC_VOTERS, DYNAMIC_VOTERS = 0, 1
"""Versions of the file: since kraft.version 1 the voters are in the log."""


class QuorumState(NamedTuple):
    """The content of the file. `since` is 0 if another broker led last; `fault` is
    what is wrong with the file, which can be written again."""

    epoch: int = 0
    since: int = 0
    fault: str = ""

    def led_alone_since(self, log_epoch: int) -> int:
        """`since`, 0 also if the file is older than the end of the log, which is of `log_epoch`: it
        says nothing then of who wrote that."""
        return self.since if self.epoch >= log_epoch else 0


def encode_quorum_state(leader_id: int, epoch: int, *, since: int, kraft_version: int) -> bytes:
    """The file of a quorum of one, in which nobody needs to vote."""
    import json

    content: dict[str, object] = {}
    if kraft_version == 0:
        content["clusterId"] = ""
    content |= {"leaderId": leader_id, "leaderEpoch": epoch, "votedId": -1}
    if kraft_version == 0:
        content |= {"appliedOffset": 0, "currentVoters": [{"voterId": leader_id}]}
        content["data_version"] = STATIC_VOTERS
    else:
        content |= {"votedDirectoryId": uuid_text(ZERO_UUID), "data_version": DYNAMIC_VOTERS}
    content[SINCE] = since
    return json.dumps(content, separators=(",", ":")).encode()


def read_quorum_state(files: Filesystem, folder: str) -> QuorumState:
    """Read the file; one that is missing or damaged is as if another broker had led. Raises
    OSError."""
    path = f"{folder}/{QUORUM_STATE}"
    try:
        data = files.read_bytes(path)
    except FileNotFoundError:
        return QuorumState()
    import json

    try:
        content = json.loads(data)
        epoch = content["leaderEpoch"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        return QuorumState(fault=f"not a quorum state: {error!r}")
    if type(epoch) is not int or not 0 <= epoch < LARGEST_EPOCH:
        return QuorumState(fault=f"leaderEpoch is {epoch!r}, wanted 0 to {LARGEST_EPOCH - 1}")
    since = content.get(SINCE)
    return QuorumState(epoch, since if isinstance(since, int) and 0 < since <= epoch else 0)
