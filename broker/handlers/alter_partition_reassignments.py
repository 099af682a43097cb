"""AlterPartitionReassignments: partitions can only move to where they are, this node; between the
processes of a directory, where several serve it.

A directory that comes from a larger cluster may name replicas that are not here any more, and moves
that were begun there. To assign such a partition to this node alone ends both; to cancel a move
leaves out those whom it would have added.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.handlers.metadata_changes import changed, make_change
from broker.handlers.nodes import process_of, there_is
from protocol.errors import ErrorCode, KafkaError
from protocol.logdata.metadata import PartitionChangeRecord
from protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)

if TYPE_CHECKING:
    from broker.handlers.context import Context
    from broker.metadata.changes import ChangeWait
    from broker.metadata.moves import Moves
    from protocol.connection import Request
    from storage.metadata.image import PartitionState, TopicState
    from storage.steps import Steps

Asked = AlterPartitionReassignmentsRequest.Topic.Partition
TopicResult = AlterPartitionReassignmentsResponse.Topic


def alter_partition_reassignments(request: Request, ctx: Context) -> ChangeWait:
    return changed(_answer(request, ctx), ctx)


def _answer(request: Request, ctx: Context) -> Steps[AlterPartitionReassignmentsResponse]:
    message: AlterPartitionReassignmentsRequest = request.message
    moves = _Moves(ctx, may_change_count=message.allow_replication_factor_change)
    responses = [
        TopicResult(
            name=topic.name,
            partitions=[moves.answered(topic.name, asked) for asked in topic.partitions],
        )
        for topic in message.topics
    ]
    response = AlterPartitionReassignmentsResponse(error_code=ErrorCode.NONE, responses=responses)
    response.allow_replication_factor_change = message.allow_replication_factor_change
    try:
        yield from make_change("moving partitions", list(moves.changes.values()), ctx)
        if moves.between_processes:
            assert ctx.moves is not None
            yield from ctx.moves.begin(moves.between_processes)
    except OSError as error:
        ctx.failed("moving partitions", error)
        response.error_code, response.responses = ErrorCode.KAFKA_STORAGE_ERROR, []
    except KafkaError as error:
        response.error_code, response.error_message, response.responses = error.code, str(error), []
    return response


class _Moves:
    """The moves that a request asks for, partition by partition."""

    def __init__(self, ctx: Context, *, may_change_count: bool) -> None:
        self._image = ctx.controller.image
        self._ctx = ctx
        self._may_change_count = may_change_count
        self.changes: dict[tuple[bytes, int], PartitionChangeRecord] = {}
        self.between_processes: dict[tuple[bytes, int], int] = {}

    def answered(self, name: str, asked: Asked) -> TopicResult.Partition:
        index = asked.partition_index
        entry = TopicResult.Partition(partition_index=index, error_code=ErrorCode.NONE)
        try:
            topic = self._image.topics.get(name)
            state = None if topic is None else topic.partitions.get(index)
            if topic is None or state is None:
                raise KafkaError(
                    f"there is no partition {index} of a topic '{name}'",
                    code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                )
            if self._ctx.moves is not None and asked.replicas is not None:
                self._move(topic, index, asked.replicas, self._ctx.moves)
                return entry
            replicas = self._replicas_after(state, asked.replicas)
        except KafkaError as error:
            entry.error_code, entry.error_message = error.code, str(error)
            return entry
        if replicas != state.replicas or state.adding or state.removing:
            self.changes[topic.topic_id, index] = PartitionChangeRecord(
                partition_id=index,
                topic_id=topic.topic_id,
                replicas=list(replicas),
                adding_replicas=[],
                removing_replicas=[],
                directories=_directories(state, replicas),
            )
        return entry

    def _move(self, topic: TopicState, index: int, wanted: list[int], moves: Moves) -> None:
        """Note a move to another process. Raises KafkaError."""
        number, state = process_of(wanted, self._ctx), topic.partitions[index]
        if number is None:
            raise KafkaError(
                f"replicas {wanted}; {there_is(self._ctx)}",
                code=ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            )
        if (topic.topic_id, index) in moves.pending or not moves.serves(state.process):
            raise KafkaError(
                f"partition {index} of '{topic.name}' is led by nobody at the moment",
                code=ErrorCode.LEADER_NOT_AVAILABLE,
            )
        if number != state.process:
            self.between_processes[topic.topic_id, index] = number

    def _replicas_after(self, state: PartitionState, wanted: list[int] | None) -> tuple[int, ...]:
        """The replicas after the change. Raises KafkaError."""
        moved = [one for one in state.replicas if one not in state.adding or one in state.isr]
        if wanted is None:
            if not (state.adding or state.removing):
                raise KafkaError(code=ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
            return tuple(moved)
        if process_of(wanted, self._ctx) is None:
            raise KafkaError(
                f"replicas {wanted}; {there_is(self._ctx)}",
                code=ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            )
        if len(wanted) != len(moved) and not self._may_change_count:
            raise KafkaError(
                f"{len(moved)} replicas would become {len(wanted)}, which the request rules out",
                code=ErrorCode.INVALID_REPLICATION_FACTOR,
            )
        return tuple(wanted)


def _directories(state: PartitionState, replicas: tuple[int, ...]) -> list[bytes] | None:
    """Directories of the replicas that stay; None, for no change, if none are named."""
    if not state.directories:
        return None
    where = dict(zip(state.replicas, state.directories, strict=False))
    return [where[one] for one in replicas]
