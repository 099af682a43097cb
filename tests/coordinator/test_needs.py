"""What requests need first is made once; who cannot have it is answered in the form it knows."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any

import pytest

from broker.coordinator.needs import Need, NeededFirst
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.init_producer_id import InitProducerIdRequest
from protocol.messages.join_group import JoinGroupRequest
from protocol.messages.offset_commit import OffsetCommitRequest
from storage.steps import run_here
from tests.support.fake_connection import InProcessBroker
from tests.support.in_process_client import Asker

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from protocol.schema import Message
    from storage.steps import Steps


class Thing:
    """Something that can be made, unless `refusal` says why not."""

    def __init__(self, refusal: KafkaError | None = None) -> None:
        self.refusal = refusal
        self.made = 0
        self.need = Need(self._make)

    def _make(self) -> Steps[None]:
        yield None
        if self.refusal is not None:
            raise self.refusal
        self.made += 1

    def use(self) -> str:
        if not self.made:
            raise self.need.unmet()
        return "used"


def test_who_needs_several_things_has_each_made_once() -> None:
    first, second = Thing(), Thing()

    def use() -> list[str]:
        return [first.use(), second.use()]

    with pytest.raises(NeededFirst) as needed:
        use()
    assert run_here(needed.value.need.met(use)) == ["used", "used"]
    assert (first.made, second.made) == (1, 1)


def test_who_wanted_what_cannot_be_made_meets_the_reason_and_others_try_again() -> None:
    thing = Thing(KafkaError("no room", code=ErrorCode.COORDINATOR_NOT_AVAILABLE))

    def use() -> str:
        try:
            return thing.use()
        except KafkaError as error:
            return str(error)

    assert run_here(thing.need.met(use)) == "no room"
    with pytest.raises(NeededFirst):
        thing.use()
    thing.refusal = None
    assert run_here(thing.need.met(use)) == "used"


# On the wire


@pytest.fixture
def asker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Asker]:
    """A client of a broker that can change no metadata."""

    def refused(*_args: Any, **_words: Any) -> Iterator[None]:
        yield None
        raise OSError(errno.EIO, "it broke")

    with InProcessBroker(tmp_path / "data") as broker:
        parts = broker.running.broker
        monkeypatch.setattr(parts.topics, "create_automatically", refused)
        monkeypatch.setattr(parts.controller.store, "reservation", refused)
        yield Asker(broker)


@pytest.mark.parametrize(
    ("request_", "version"),
    [
        (FindCoordinatorRequest(key="g", key_type=0), 3),
        (FindCoordinatorRequest(key="x", key_type=1), 3),
        (InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1), 4),
        (InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=1), 4),
        (
            AddOffsetsToTxnRequest(
                transactional_id="x", producer_id=1, producer_epoch=0, group_id="g"
            ),
            3,
        ),
    ],
)
def test_a_coordinator_without_its_topic_is_not_available(
    asker: Asker, request_: Message, version: int
) -> None:
    answer = asker.call(request_, version)
    assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_a_member_of_a_group_without_the_topic_is_answered_with_its_name(asker: Asker) -> None:
    answer = asker.call(
        JoinGroupRequest(
            group_id="g",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            member_id="me",
            protocol_type="consumer",
            protocols=[],
        ),
        5,
    )
    assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert answer.member_id == "me"


def test_a_commit_without_the_topic_is_refused_for_each_partition(asker: Asker) -> None:
    topic = OffsetCommitRequest.Topic
    entry = topic.Partition(partition_index=3, committed_offset=7, committed_metadata="")
    answer = asker.call(
        OffsetCommitRequest(group_id="g", topics=[topic(name="t", partitions=[entry])]), 7
    )
    ((refused,),) = (one.partitions for one in answer.topics)
    assert (refused.partition_index, refused.error_code) == (3, ErrorCode.COORDINATOR_NOT_AVAILABLE)
