"""The language of the stories of an observer: what the leader answers, and what comes of it.

    == a title
    held start=10 end=20 epochs=1@10,2@15 partial=30-2:4096     what an earlier run left, if any
    with cluster=C piece=1000                                   what else is not the usual
    batches 20..24@2 25..25@3 hw=26       the answer to a fetch; after the @ is the batch's epoch
    snapshot 30-2                         likewise; so are `diverging EPOCH END` and `nothing`
    piece 0+400 of 1000                   the answer to a FetchSnapshot; `of=30-2` is of another one
    error NAME leader=1@3 node=1:h:9093   the answer to either, for the partition
    refuse NAME                           the same for the whole request
    loaded      damaged      truncated 20      cut      compacted 26-3

`damaged batches ...` have a wrong checksum, `torn batches ...` lack their last byte. Answers to
fetches come from leader 1 in epoch 3, unless `leader=` says otherwise. Below each line stand the
effects, and what is asked next, behind `->`.

`python -m tests.broker.metadata.following.transcripts FILE` prints a file with what happens in
truth.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from broker.metadata.following.effects import (
    Append,
    Commit,
    DropPartial,
    GoTo,
    LoadSnapshot,
    ObserverStopped,
    Reset,
    Retry,
    StoreChunk,
    StoredState,
    Truncate,
)
from broker.metadata.following.machine import ObserverMachine
from protocol.errors import ErrorCode
from protocol.logdata.metadata import NoOpRecord, encode_record, metadata_batch
from protocol.logdata.metadata_names import SnapshotId
from protocol.messages.fetch import FetchRequest, FetchResponse
from protocol.messages.fetch_snapshot import FetchSnapshotResponse

if TYPE_CHECKING:
    from broker.metadata.following.effects import Effect

SCRIPTS = Path(__file__).with_name("scripts")
Fetched = FetchResponse.Topic.Partition
Piece = FetchSnapshotResponse.Topic.Partition


def actual(lines: list[str]) -> list[str]:
    """The story with what happens in truth."""
    told: list[str] = []
    settings: dict[str, str] = {}
    teller: Teller | None = None
    for line in lines:
        words = line.split()
        if not words or words[0] == "->":
            continue
        if words[0] in ("held", "with"):
            settings |= dict(word.split("=") for word in words[1:])
            told.append(line)
            continue
        if teller is None:
            teller = Teller(settings)
            told += [f"    -> {teller.asked()}"]
        told.append(line)
        told += [f"    -> {effect}" for effect in teller.tell(words)]
    return told


class Teller:
    """Plays one story with a machine."""

    def __init__(self, settings: dict[str, str]) -> None:
        epochs = tuple(
            (int(epoch), int(offset))
            for word in settings.get("epochs", "").split(",")
            if word
            for epoch, offset in [word.split("@")]
        )
        partial = None
        if "partial" in settings:
            name, size = settings["partial"].split(":")
            partial = snapshot_id(name), int(size)
        start, end = int(settings.get("start", 0)), int(settings.get("end", 0))
        self.machine = ObserverMachine(
            cluster_id=settings.get("cluster"),
            held=StoredState(start, end, epochs, partial),
            piece_bytes=int(settings.get("piece", 1000)),
        )
        self._ended = False

    def asked(self) -> str:
        """What the machine asks next."""
        request = self.machine.next_request()
        part: Any = request.topics[0].partitions[0]
        where = f"in epoch {part.current_leader_epoch}"
        if isinstance(request, FetchRequest):
            waiting = "" if request.max_wait_ms else ", at once"
            last = part.last_fetched_epoch
            return f"fetch {part.fetch_offset} after epoch {last}, {where}{waiting}"
        name = f"{part.snapshot_id.end_offset}-{part.snapshot_id.epoch}"
        return f"fetch {request.max_bytes} of {name} at {part.position}, {where}"

    def tell(self, words: list[str]) -> list[str]:
        """One line of the story, and what comes of it."""
        try:
            effects = self._do(words)
        except ObserverStopped as error:
            return [f"stopped: {error}"]
        shown = [show(effect) for effect in effects]
        waits = any(isinstance(effect, LoadSnapshot | Truncate) for effect in effects)
        return shown if waits else [*shown, self.asked()]

    def _do(self, words: list[str]) -> list[Effect]:
        machine, verb = self.machine, words[0]
        if verb == "loaded":
            machine.loaded()
        elif verb == "cut":
            machine.disconnected()
        elif verb == "truncated":
            machine.truncated(int(words[1]))
        elif verb == "compacted":
            machine.compacted(snapshot_id(words[1]))
        elif verb == "damaged" and len(words) == 1:
            return machine.damaged("position 5: no good")
        else:
            return machine.received(self._answer(words))
        return []

    def _answer(self, words: list[str]) -> FetchResponse | FetchSnapshotResponse:
        options = dict(word.split("=") for word in words if "=" in word)
        plain = [word for word in words if "=" not in word]
        if plain[0] in ("error", "refuse"):
            return self._error(plain, options)
        if plain[0] == "piece":
            return self._piece(plain, options)
        part = Fetched(
            partition_index=0, error_code=0, high_watermark=int(options.get("hw", -1)), records=b""
        )
        part.current_leader = Fetched.LeaderIdAndEpoch(
            leader_id=1, leader_epoch=int(options.get("leader", 3))
        )
        if plain[0] == "snapshot":
            end_offset, epoch = snapshot_id(plain[1])
            part.snapshot_id = Fetched.SnapshotId(end_offset=end_offset, epoch=epoch)
        elif plain[0] == "diverging":
            part.diverging_epoch = Fetched.EpochEndOffset(
                epoch=int(plain[1]), end_offset=int(plain[2])
            )
        elif plain[0] != "nothing":
            data = bytearray(b"".join(batch(word) for word in plain if ".." in word))
            if plain[0] == "damaged":
                data[-1] ^= 1
            part.records = bytes(data[: -1 if plain[0] == "torn" else None])
        return fetched(part)

    def _error(
        self, plain: list[str], options: dict[str, str]
    ) -> FetchResponse | FetchSnapshotResponse:
        code = ErrorCode[plain[1]]
        fetching = isinstance(self.machine.next_request(), FetchRequest)
        if plain[0] == "refuse":
            if fetching:
                return FetchResponse(error_code=code, responses=[])
            return FetchSnapshotResponse(error_code=code, topics=[])
        leader_id, epoch = (int(word) for word in options.get("leader", "1@3").split("@"))
        if fetching:
            part = Fetched(partition_index=0, error_code=code, high_watermark=-1, records=b"")
            part.current_leader = Fetched.LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=epoch)
            answer = fetched(part)
            if "node" in options:
                node, host, port = options["node"].split(":")
                answer.node_endpoints = [
                    FetchResponse.NodeEndpoint(node_id=int(node), host=host, port=int(port))
                ]
            return answer
        piece = Piece(
            index=0,
            error_code=code,
            snapshot_id=Piece.SnapshotId(end_offset=0, epoch=0),
            size=0,
            position=0,
            unaligned_records=b"",
        )
        piece.current_leader = Piece.LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=epoch)
        return piece_fetched(piece)

    def _piece(self, plain: list[str], options: dict[str, str]) -> FetchSnapshotResponse:
        request = self.machine.next_request()
        assert not isinstance(request, FetchRequest)
        asked = request.topics[0].partitions[0].snapshot_id
        came = snapshot_id(options.get("of", f"{asked.end_offset}-{asked.epoch}"))
        position, length = (int(word) for word in plain[1].split("+"))
        return piece_fetched(
            Piece(
                index=0,
                error_code=0,
                snapshot_id=Piece.SnapshotId(end_offset=came.end_offset, epoch=came.epoch),
                size=int(plain[3]),
                position=position,
                unaligned_records=bytes(length),
            )
        )


def fetched(part: Fetched) -> FetchResponse:
    """The answer with this partition, as it is after its way over the wire."""
    answer = FetchResponse(responses=[FetchResponse.Topic(topic="", partitions=[part])])
    return FetchResponse.decode(17, answer.encode(17))


def piece_fetched(part: Piece) -> FetchSnapshotResponse:
    """The answer with this piece, as it is after its way over the wire."""
    topic = FetchSnapshotResponse.Topic(name="__cluster_metadata", partitions=[part])
    answer = FetchSnapshotResponse(error_code=0, topics=[topic])
    return FetchSnapshotResponse.decode(1, answer.encode(1))


def snapshot_id(word: str) -> SnapshotId:
    end_offset, epoch = word.split("-")
    return SnapshotId(int(end_offset), int(epoch))


def batch(word: str) -> bytes:
    """`5..7@2` is a batch of three records, written in epoch 2."""
    offsets, epoch = word.split("@")
    first, last = (int(number) for number in offsets.split(".."))
    values = [encode_record(NoOpRecord())] * (last - first + 1)
    made = metadata_batch(values, base_offset=first, epoch=int(epoch), timestamp_ms=1)
    return bytes(made)


def show(effect: Effect) -> str:
    match effect:
        case StoreChunk(one, position, data, size):
            return f"keep {len(data)} of {one.end_offset}-{one.epoch} at {position} of {size}"
        case DropPartial(one):
            return f"drop {one.end_offset}-{one.epoch}"
        case LoadSnapshot(one, size):
            return f"load {one.end_offset}-{one.epoch} of {size}"
        case Append(base_offset, end_offset):
            return f"append {base_offset}..{end_offset - 1}"
        case Commit(end_offset):
            return f"commit below {end_offset}"
        case Truncate(end_offset):
            return f"truncate to {end_offset}"
        case Reset(reason):
            return f"reset: {reason}"
        case Retry(reason):
            return f"wait: {reason}"
        case GoTo(node_id, host, port):
            return f"go to node {node_id} at {host}:{port}" if host else "go elsewhere"


def stories(path: Path) -> dict[str, list[str]]:
    """The lines of a file under their titles."""
    found: dict[str, list[str]] = {}
    for line in path.read_text().splitlines():
        if line.startswith("== "):
            title = line[3:]
            found[title] = []
        elif line.strip():
            found[title].append(line)
    return found


def main() -> None:
    told = stories(Path(sys.argv[1]))
    print("\n\n".join("\n".join([f"== {title}", *actual(lines)]) for title, lines in told.items()))


if __name__ == "__main__":
    main()
