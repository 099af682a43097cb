"""An observer of the metadata log, without any I/O: it says what to ask, and reads the answers.

    FETCHING      asks for the log from its end on. The leader answers with batches, with the epoch
                  at which the two logs part, or with the id of a snapshot.
    DOWNLOADING   asks for that snapshot piece by piece. A cut costs no more than the piece that was
                  on its way; what is there already is kept, also by a later run.
    LOADING       has all bytes and waits to hear whether they are a snapshot.

If the snapshot is gone at the leader, or shorter than what is here, the observer asks from offset 0
as if it had nothing, and is told of another one (KIP-630). State and log stay until a snapshot is
there to take their place. A snapshot or a batch that was damaged on the way is asked for again, a
bounded number of times.

The leader is believed in an epoch only. A request with an older one is refused with the present
one, which is taken. One with a newer one means that the node asked is not up to date yet, or that
it was set back: only after `BEHIND_TRIES` such answers in a row is its epoch taken.

Raises ObserverStopped where asking again would not help.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from broker.metadata.following.effects import (
    Append,
    Commit,
    DropPartial,
    Effect,
    GoTo,
    LoadSnapshot,
    ObserverStopped,
    Reset,
    Retry,
    StoreChunk,
    StoredState,
    Truncate,
)
from broker.metadata.following.requests import Asker, fetch_request, snapshot_request
from protocol.errors import ErrorCode
from protocol.logdata.metadata_names import SnapshotId
from protocol.messages.fetch import FetchRequest, FetchResponse
from protocol.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse
from protocol.records.batch import Batch
from protocol.records.errors import CorruptBatch
from protocol.records.walk import walk

if TYPE_CHECKING:
    from collections.abc import Sequence


MAX_WAIT_MS = 5000
"""The time that the leader may keep a fetch for which there is nothing yet."""
PIECE_BYTES = 1024 * 1024
"""Asked of a snapshot at once; each cut halves it, so that a bad line gets through at last."""
PIECE_BYTES_MIN = 16 * 1024
SNAPSHOT_BYTES_MAX = 4 * 1024**3
"""A larger snapshot is none: a million partitions take 100 MB."""
DAMAGE_TRIES = 5
"""So many snapshots or batches in a row may come damaged."""
BEHIND_TRIES = 5
"""So often may a node say in a row that it does not know our epoch yet."""

OUR_MISTAKES = frozenset({ErrorCode.INVALID_REQUEST, ErrorCode.UNSUPPORTED_VERSION})
NOT_HERE = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})
NOT_ALLOWED = frozenset(
    {ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED}
)
SNAPSHOT_GONE = frozenset({ErrorCode.SNAPSHOT_NOT_FOUND, ErrorCode.POSITION_OUT_OF_RANGE})

FetchedPartition = FetchResponse.Topic.Partition
SnapshotPiece = FetchSnapshotResponse.Topic.Partition
Leader = FetchedPartition.LeaderIdAndEpoch | SnapshotPiece.LeaderIdAndEpoch
Endpoint = FetchResponse.NodeEndpoint | FetchSnapshotResponse.NodeEndpoint
NOTHING = StoredState()


class Phase(Enum):
    FETCHING = "fetching"
    DOWNLOADING = "downloading"
    LOADING = "loading"


MOVES: dict[Phase, frozenset[Phase]] = {
    Phase.FETCHING: frozenset({Phase.DOWNLOADING}),
    Phase.DOWNLOADING: frozenset({Phase.FETCHING, Phase.LOADING}),
    Phase.LOADING: frozenset({Phase.FETCHING}),
}


class ObserverMachine:
    """One observer. The calls alternate: `next_request`, then `received` or `disconnected`."""

    def __init__(
        self,
        *,
        cluster_id: str | None,
        held: StoredState = NOTHING,
        replica_id: int = -1,
        directory_id: bytes = bytes(16),
        piece_bytes: int = PIECE_BYTES,
        max_wait_ms: int = MAX_WAIT_MS,
    ) -> None:
        """`cluster_id` None follows any cluster. `replica_id` and `directory_id` (16 bytes) are
        those of a broker, -1 and zeros for a mere looker-on."""
        self.phase = Phase.FETCHING
        self.start_offset = held.start_offset
        self.end_offset = held.end_offset
        self.committed_offset = held.start_offset  # of the log, nothing is known to be agreed upon
        self.high_watermark = -1
        # Apache Kafka takes neither a negative one, nor one below that of the last batch.
        self.leader_epoch = max((epoch for epoch, _ in held.epochs), default=0)
        self._epochs = list(held.epochs)
        self.cluster_id = cluster_id
        self._replica_id = replica_id
        self._directory_id = directory_id
        self._max_wait_ms = max_wait_ms
        self._piece_bytes_max = piece_bytes
        self._piece_bytes = piece_bytes
        self._partial: SnapshotId | None = None
        self._position = 0
        if held.partial is not None:
            self._partial, self._position = held.partial
        # A run that ended with the last piece written would ask for bytes past the end.
        self._position = max(self._position - 1, 0)
        self._size = -1
        self._from_scratch = False
        self._truncating = False
        self._in_a_hurry = True
        self._damaged = self._behind = self._failed = 0

    # What to ask

    def next_request(self) -> FetchRequest | FetchSnapshotRequest:
        """The next request to the leader."""
        assert self.phase is not Phase.LOADING, "it is not said whether the snapshot is good"
        assert not self._truncating, "it is not said where the log ends"
        return self._fetch() if self.phase is Phase.FETCHING else self._fetch_snapshot()

    @property
    def asked_offset(self) -> int:
        """From where the log is asked for: 0 also when another snapshot is wanted."""
        return 0 if self._from_scratch else self.end_offset

    @property
    def caught_up(self) -> bool:
        """Whether all that the leader has agreed upon so far has been replayed."""
        return 0 <= self.high_watermark <= self.committed_offset

    def _fetch(self) -> FetchRequest:
        epoch = self._epochs[-1][0] if self._epochs and not self._from_scratch else 0
        return fetch_request(
            self._asker,
            leader_epoch=self.leader_epoch,
            offset=self.asked_offset,
            last_epoch=epoch,
            high_watermark=self.high_watermark,
            max_wait_ms=0 if self._in_a_hurry else self._max_wait_ms,
        )

    def _fetch_snapshot(self) -> FetchSnapshotRequest:
        assert self._partial is not None
        return snapshot_request(
            self._asker,
            leader_epoch=self.leader_epoch,
            snapshot_id=self._partial,
            position=self._position,
            max_bytes=self._piece_bytes,
        )

    @property
    def _asker(self) -> Asker:
        return Asker(self.cluster_id, self._replica_id, self._directory_id)

    # What comes back

    def received(self, answer: FetchResponse | FetchSnapshotResponse) -> list[Effect]:
        """Take the answer to the last request."""
        if isinstance(answer, FetchResponse):
            return self._fetched(answer)
        return self._piece_fetched(answer)

    def disconnected(self) -> None:
        """The answer to the last request will not come."""
        if self.phase is Phase.DOWNLOADING:
            least = min(PIECE_BYTES_MIN, self._piece_bytes_max)
            self._piece_bytes = max(self._piece_bytes // 2, least)

    def loaded(self) -> None:
        """The snapshot is good, and has taken the place of what was there before."""
        assert self._partial is not None
        self._become(Phase.FETCHING)
        snapshot_id, self._partial = self._partial, None
        self._hold(snapshot_id.end_offset, [(snapshot_id.epoch, snapshot_id.end_offset)])
        self._damaged = 0

    def compacted(self, snapshot_id: SnapshotId) -> None:
        """A snapshot of our own has taken the place of the log; it holds all there is."""
        assert snapshot_id.end_offset == self.end_offset == self.committed_offset
        self.start_offset = snapshot_id.end_offset
        self._epochs = [(snapshot_id.epoch, snapshot_id.end_offset)]

    def damaged(self, reason: str) -> list[Effect]:
        """The snapshot is no good."""
        assert self.phase is Phase.LOADING
        return self._come_damaged(f"snapshot {self._partial}: {reason}")

    def truncated(self, end_offset: int) -> None:
        """The log ends there now; 0 also means that the snapshot is gone."""
        assert self._truncating
        self._truncating = False
        if end_offset < self.start_offset or not end_offset:
            self._hold(0, [])
            return
        self.end_offset = end_offset
        self.committed_offset = min(self.committed_offset, end_offset)
        anchor = self._epochs[:1] if self.start_offset else []
        rest = self._epochs[len(anchor) :]
        self._epochs = anchor + [entry for entry in rest if entry[1] < end_offset]

    # Fetch

    def _fetched(self, answer: FetchResponse) -> list[Effect]:
        assert self.phase is Phase.FETCHING
        topics = answer.responses
        if answer.error_code:
            return self._refused(answer.error_code, None, answer.node_endpoints)
        if len(topics) != 1 or len(topics[0].partitions) != 1:
            return self._come_damaged("a fetch was answered with other partitions than asked")
        partition = topics[0].partitions[0]
        if partition.error_code:
            leader = partition.current_leader
            return self._refused(partition.error_code, leader, answer.node_endpoints)
        self._heard_of(partition.current_leader.leader_epoch)
        told = SnapshotId(partition.snapshot_id.end_offset, partition.snapshot_id.epoch)
        if told.end_offset >= 0:
            return self._told_of(told)
        diverging = partition.diverging_epoch
        if diverging.end_offset >= 0:
            return self._diverged(diverging.epoch, diverging.end_offset)
        return self._take_batches(partition)

    def _told_of(self, snapshot_id: SnapshotId) -> list[Effect]:
        """The log at the leader does not go back as far as asked for, but a snapshot does."""
        if self._from_scratch and self._epochs and self._is_ours(snapshot_id):
            self._from_scratch = False
            return []
        effects: list[Effect] = []
        if self._partial != snapshot_id:
            effects = self._drop_partial()
        self._partial = snapshot_id
        self._size = -1
        self._become(Phase.DOWNLOADING)
        return effects

    def _is_ours(self, snapshot_id: SnapshotId) -> bool:
        return bool(self.start_offset) and snapshot_id == (self.start_offset, self._epochs[0][0])

    def _diverged(self, epoch: int, end_offset: int) -> list[Effect]:
        """The leader's log has nothing of our last epoch, or less of it. Its largest epoch that is
        not above ours, and the end of that, are given; both logs are the same up to the lower of
        the two ends."""
        ours = [index for index, entry in enumerate(self._epochs) if entry[0] <= epoch]
        if not ours:
            return self._reset(f"the leader's log parts from ours in epoch {epoch}, before ours")
        last = ours[-1]
        is_newest = last + 1 == len(self._epochs)
        common = self.end_offset if is_newest else self._epochs[last + 1][1]
        if self._epochs[last][0] == epoch:
            common = min(common, end_offset)
        if not self.start_offset <= common < self.end_offset:
            return self._reset(
                f"the leader's log parts from ours at offset {end_offset} of epoch {epoch}"
            )
        self._truncating = True
        return [Truncate(common)]

    def _take_batches(self, partition: FetchedPartition) -> list[Effect]:
        effects: list[Effect] = []
        data = memoryview(partition.records or b"")
        if self._from_scratch and len(data):
            effects += self._reset("the leader has its whole log and no snapshot of it")
        try:
            appended = self._checked(data)
        except CorruptBatch as error:
            return [*effects, *self._come_damaged(str(error))]
        if appended is not None:
            effects.append(appended)
            self._damaged = 0
        elif len(data):
            return [*effects, *self._come_damaged("a fetch was answered with a piece of a batch")]
        self._behind = 0
        self._in_a_hurry = False
        if partition.high_watermark >= 0:  # a new leader does not know it at once
            self.high_watermark = partition.high_watermark
        agreed = min(self.high_watermark, self.end_offset)
        if agreed > self.committed_offset:
            self.committed_offset = agreed
            effects.append(Commit(agreed))
        return effects

    def _checked(self, data: memoryview) -> Append | None:
        """The whole batches of an answer, from the one that is to come next on. Raises
        CorruptBatch, and then nothing has changed."""
        first = last = 0
        end_offset = self.end_offset
        epochs: list[tuple[int, int]] = []
        newest = self._epochs[-1][0] if self._epochs else -1
        for position, size, magic in walk(data):
            batch = Batch(data[position : position + size])
            if magic != 2 or not batch.is_intact():
                raise CorruptBatch(f"the batch at offset {end_offset} has a wrong checksum")
            if batch.last_offset < self.end_offset:
                continue  # the leader looks for it by offset, and may begin early
            if batch.base_offset != end_offset or batch.last_offset < batch.base_offset:
                raise CorruptBatch(f"offset {batch.base_offset} follows offset {end_offset - 1}")
            if not newest <= batch.leader_epoch <= self.leader_epoch:
                raise CorruptBatch(
                    f"the batch at offset {batch.base_offset} has epoch {batch.leader_epoch}, "
                    f"wanted one of {newest} to {self.leader_epoch}"
                )
            if last == first:
                first = position
            if batch.leader_epoch > newest:
                newest = batch.leader_epoch
                epochs.append((newest, batch.base_offset))
            last, end_offset = position + size, batch.last_offset + 1
        if first == last:
            return None
        self._epochs += epochs
        base_offset, self.end_offset = self.end_offset, end_offset
        return Append(base_offset, end_offset, data[first:last])

    # FetchSnapshot

    def _piece_fetched(self, answer: FetchSnapshotResponse) -> list[Effect]:
        assert self.phase is Phase.DOWNLOADING
        topics = answer.topics
        if answer.error_code:
            return self._refused(answer.error_code, None, answer.node_endpoints)
        if len(topics) != 1 or len(topics[0].partitions) != 1:
            return self._come_damaged("a snapshot was asked for, and something else came")
        piece = topics[0].partitions[0]
        if piece.error_code in SNAPSHOT_GONE:
            return self._start_over(named(piece.error_code))
        if piece.error_code:
            return self._refused(piece.error_code, piece.current_leader, answer.node_endpoints)
        wrong = self._wrong_with(piece)
        if wrong:
            return self._come_damaged(f"a piece of snapshot {self._partial}: {wrong}")
        return self._take_piece(piece.size, memoryview(piece.unaligned_records))

    def _wrong_with(self, piece: SnapshotPiece) -> str | None:
        came = SnapshotId(piece.snapshot_id.end_offset, piece.snapshot_id.epoch)
        if came != self._partial:
            return f"it is of {came}"
        if piece.position != self._position:
            return f"it is for position {piece.position}, wanted {self._position}"
        if not 0 < piece.size <= SNAPSHOT_BYTES_MAX:
            return f"the size is {piece.size}, wanted 1 to {SNAPSHOT_BYTES_MAX}"
        if self._size not in (-1, piece.size):
            return f"the size is {piece.size}, and was {self._size}"
        if not 0 < len(piece.unaligned_records or b"") <= piece.size - piece.position:
            return (
                f"it has {len(piece.unaligned_records or b'')} bytes, at most {piece.size} in all"
            )
        return None

    def _take_piece(self, size: int, data: memoryview) -> list[Effect]:
        assert self._partial is not None
        effects: list[Effect] = [StoreChunk(self._partial, self._position, data, size)]
        self._size = size
        self._position += len(data)
        self._failed = self._behind = 0
        self._piece_bytes = min(self._piece_bytes * 2, self._piece_bytes_max)
        if self._position == size:
            self._become(Phase.LOADING)
            effects.append(LoadSnapshot(self._partial, size))
        return effects

    # Refusals

    def _refused(
        self, code: int, leader: Leader | None, endpoints: Sequence[Endpoint]
    ) -> list[Effect]:
        """The effects of an error that is not about a snapshot."""
        if code == ErrorCode.INCONSISTENT_CLUSTER_ID:
            raise ObserverStopped(
                f"the controller is not of cluster {self.cluster_id}, as what is here: give the "
                "address of that cluster's controller, or an empty directory to follow this one"
            )
        if code in NOT_HERE:
            raise ObserverStopped("the metadata log is not served at this address")
        if code in OUR_MISTAKES or code in NOT_ALLOWED:
            raise ObserverStopped(f"the controller refused with {named(code)}")
        if code == ErrorCode.OFFSET_OUT_OF_RANGE and self.phase is Phase.FETCHING:
            return self._reset(named(code))
        if code == ErrorCode.UNKNOWN_LEADER_EPOCH:
            return self._is_behind(leader.leader_epoch if leader else -1)
        if leader is not None and leader.leader_epoch > self.leader_epoch:
            self._heard_of(leader.leader_epoch)
            if code == ErrorCode.FENCED_LEADER_EPOCH:
                return []
        if code == ErrorCode.NOT_LEADER_OR_FOLLOWER and leader is not None:
            known = [node for node in endpoints if node.node_id == leader.leader_id]
            where = (known[0].host, known[0].port) if known else (None, 0)
            return [GoTo(leader.leader_id, *where), Retry(named(code))]
        if self.phase is Phase.DOWNLOADING:
            return self._ask_again(code)
        return [Retry(named(code))]

    def _ask_again(self, code: int) -> list[Effect]:
        """The snapshot was refused without a good reason. Apache Kafka 3.9 answers every error with
        UNKNOWN_SERVER_ERROR, so it may be gone, or the epoch is over: a fetch will tell. If that
        leads to the same piece and the same refusal, what there is of the snapshot goes."""
        self._failed += 1
        if self._failed > 1:
            return self._start_over(named(code))
        self._become(Phase.FETCHING)
        return [Retry(named(code))]

    def _start_over(self, reason: str) -> list[Effect]:
        """Forget what there is of the snapshot and ask as if there were nothing."""
        effects = self._drop_partial()
        self._become(Phase.FETCHING)
        self._failed = 0
        self._from_scratch = self.end_offset > 0
        return [*effects, Retry(reason)]

    def _come_damaged(self, reason: str) -> list[Effect]:
        self._damaged += 1
        if self._damaged >= DAMAGE_TRIES:
            raise ObserverStopped(
                f"{reason}; it came damaged {DAMAGE_TRIES} times: look at the disk of the "
                "controller and at what is between it and here"
            )
        if self.phase is Phase.FETCHING:
            return [Retry(reason)]
        return self._start_over(reason)

    def _is_behind(self, epoch: int) -> list[Effect]:
        self._behind += 1
        if self._behind >= BEHIND_TRIES and epoch >= 0:
            self._behind = 0
            self.leader_epoch = epoch
            if self._epochs and self._epochs[-1][0] > epoch:
                return self._reset(f"the controller is in epoch {epoch}, below our log's last")
        return [Retry(named(ErrorCode.UNKNOWN_LEADER_EPOCH))]

    def _heard_of(self, epoch: int) -> None:
        if epoch > self.leader_epoch:
            self.leader_epoch = epoch
            self._behind = 0

    # State

    def _become(self, phase: Phase) -> None:
        assert phase in MOVES[self.phase], f"{self.phase} does not lead to {phase}"
        self.phase = phase

    def _hold(self, end_offset: int, epochs: list[tuple[int, int]]) -> None:
        """Snapshot and log are these now; nothing after the snapshot is there yet."""
        self.start_offset = self.end_offset = self.committed_offset = end_offset
        self.high_watermark = -1
        self._in_a_hurry = True  # to hear whether that is all there is
        self._epochs = epochs
        self._position = 0
        self._from_scratch = False

    def _drop_partial(self) -> list[Effect]:
        partial, self._partial = self._partial, None
        self._position = 0
        return [] if partial is None else [DropPartial(partial)]

    def _reset(self, reason: str) -> list[Effect]:
        effects = self._drop_partial()
        if self.phase is Phase.DOWNLOADING:
            self._become(Phase.FETCHING)
        self._hold(0, [])
        return [*effects, Reset(reason), Retry(reason)]


def named(code: int) -> str:
    """An error code with its number."""
    try:
        return f"{ErrorCode(code).name} ({code})"
    except ValueError:
        return f"error {code}"
