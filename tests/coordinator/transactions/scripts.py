"""Requests about transactions in an order that tells states apart, and what is answered to each.

A script runs against anything that answers requests. Apache Kafka's answers are kept in `vectors`
(see `capture.py`); ours have to be the same. Producer ids are numbered as they appear, for every
cluster hands out others.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from protocol.errors import ErrorCode
from protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, Topic
from protocol.messages.describe_transactions import DescribeTransactionsRequest
from protocol.messages.end_txn import EndTxnRequest
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.init_producer_id import InitProducerIdRequest
from protocol.messages.list_transactions import ListTransactionsRequest

if TYPE_CHECKING:
    from collections.abc import Callable

    from protocol.schema import Message

    Call = Callable[[Message, int], Any]

TOPIC = "t"
"""A topic with three partitions."""
UNKNOWN_ID = 987_654
TIMEOUT_MS = 60_000
COMMIT, ABORT = True, False
AGAIN = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
    }
)
PAUSE_S = 0.05
WITHIN_S = 30.0


class Script:
    """Runs requests and writes down what was answered, line by line."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self.lines: list[str] = []
        self.id, self.epoch = -1, -1
        """Of the instance that began last."""
        self._numbers: dict[int, int] = {-1: -1}

    def _say(self, what: str, *outcome: object) -> None:
        told = (one.name if isinstance(one, ErrorCode) else str(one) for one in outcome)
        self.lines.append(f"{what}: {' '.join(told)}")

    def _ask(self, request: Message, version: int, code: Callable[[Any], int], once: bool) -> Any:
        """The answer; while an end is under way, which takes Kafka some time, ask again."""
        deadline = time.monotonic() + WITHIN_S
        while True:
            answer = self._call(request, version)
            if once or code(answer) not in AGAIN or time.monotonic() > deadline:
                return answer
            time.sleep(PAUSE_S)

    def number(self, producer_id: int) -> int:
        """The same for the same producer id, whatever the cluster calls it."""
        return self._numbers.setdefault(producer_id, len(self._numbers) - 1)

    def find(self, transactional_id: str) -> None:
        request = FindCoordinatorRequest(key=transactional_id, key_type=1)
        answer = self._ask(request, 2, lambda told: told.error_code, once=False)
        self._say("find", ErrorCode(answer.error_code))

    def init(
        self,
        transactional_id: str = "x",
        *,
        version: int = 4,
        expected: tuple[int, int] = (-1, -1),
        timeout_ms: int = TIMEOUT_MS,
        once: bool = False,
        quiet: bool = False,
    ) -> None:
        request = InitProducerIdRequest(
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
            producer_id=expected[0],
            producer_epoch=expected[1],
        )
        answer = self._ask(request, version, lambda told: told.error_code, once)
        if not answer.error_code:
            self.id, self.epoch = answer.producer_id, answer.producer_epoch
        if not quiet or answer.error_code:
            self._say(
                f"init v{version}",
                ErrorCode(answer.error_code),
                self.number(answer.producer_id),
                answer.producer_epoch,
            )

    def add(
        self,
        *partitions: int,
        topic: str = TOPIC,
        transactional_id: str = "x",
        producer: tuple[int, int] | None = None,
        version: int = 3,
        verify: bool = False,
        once: bool = False,
        quiet: bool = False,
    ) -> None:
        producer_id, epoch = producer or (self.id, self.epoch)
        topics = [Topic(name=topic, partitions=list(partitions))]
        if version < 4:
            request = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=transactional_id,
                v3_and_below_producer_id=producer_id,
                v3_and_below_producer_epoch=epoch,
                v3_and_below_topics=topics,
            )
        else:
            asked = AddPartitionsToTxnRequest.Transaction(
                transactional_id=transactional_id,
                producer_id=producer_id,
                producer_epoch=epoch,
                verify_only=verify,
                topics=topics,
            )
            request = AddPartitionsToTxnRequest(transactions=[asked])

        def results(answer: Any) -> list[Any]:
            found = answer.results_by_topic_v3_and_below
            if version >= 4:
                found = answer.results_by_transaction[0].topic_results
            return [one for each in found for one in each.results_by_partition]

        answer = self._ask(
            request, version, lambda told: results(told)[0].partition_error_code, once
        )
        told = sorted(
            (one.partition_index, ErrorCode(one.partition_error_code).name)
            for one in results(answer)
        )
        if not quiet:
            what = "verify" if verify else "add"
            self._say(f"{what} v{version}", answer.error_code, told)

    def add_offsets(
        self, group: str, *, version: int = 3, producer: tuple[int, int] | None = None
    ) -> None:
        producer_id, epoch = producer or (self.id, self.epoch)
        request = AddOffsetsToTxnRequest(
            transactional_id="x", producer_id=producer_id, producer_epoch=epoch, group_id=group
        )
        answer = self._ask(request, version, lambda told: told.error_code, once=False)
        self._say(f"add offsets v{version}", ErrorCode(answer.error_code))

    def end(
        self,
        commit: bool,
        *,
        transactional_id: str = "x",
        producer: tuple[int, int] | None = None,
        version: int = 4,
        quiet: bool = False,
    ) -> None:
        """The producer goes on with the epoch that it is told."""
        producer_id, epoch = producer or (self.id, self.epoch)
        request = EndTxnRequest(
            transactional_id=transactional_id,
            producer_id=producer_id,
            producer_epoch=epoch,
            committed=commit,
        )
        answer = self._ask(request, version, lambda told: told.error_code, once=False)
        if not answer.error_code and version >= 5:
            self.id, self.epoch = answer.producer_id, answer.producer_epoch
        if not quiet or answer.error_code:
            self._say(
                f"{'commit' if commit else 'abort'} v{version}",
                ErrorCode(answer.error_code),
                self.number(answer.producer_id),
                answer.producer_epoch,
            )

    def reach(self, epoch: int, skip: Callable[[int], None] | None) -> None:
        """Have the producer come to this epoch."""
        if skip is not None:
            skip(epoch)
            self.epoch = epoch
        while self.epoch < epoch:
            self.end(ABORT, version=5, quiet=True)

    def state(self, transactional_id: str = "x", *, settled: bool = True) -> None:
        """What is told of an id, when its last end has come to an end."""
        request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
        deadline = time.monotonic() + WITHIN_S
        while True:
            (told,) = self._call(request, 0).transaction_states
            unsettled = settled and told.transaction_state.startswith("Prepare")
            if not (unsettled or told.error_code in AGAIN):
                break
            assert time.monotonic() < deadline, told.transaction_state
            time.sleep(PAUSE_S)
        topics = sorted((one.topic, sorted(one.partitions)) for one in told.topics)
        self._say(
            "state",
            ErrorCode(told.error_code),
            told.transaction_state or "-",
            told.transaction_timeout_ms,
            "started" if told.transaction_start_time_ms >= 0 else "-",
            self.number(told.producer_id),
            told.producer_epoch,
            topics,
        )

    def wait_for_abort(self) -> None:
        """Until the time of the transaction is up."""
        request = DescribeTransactionsRequest(transactional_ids=["x"])
        deadline = time.monotonic() + WITHIN_S
        while True:
            (told,) = self._call(request, 0).transaction_states
            if told.transaction_state == "CompleteAbort":
                return
            assert time.monotonic() < deadline, told.transaction_state
            time.sleep(PAUSE_S)

    def list(self, version: int = 1, **filters: Any) -> None:
        request = ListTransactionsRequest(
            **{"state_filters": [], "producer_id_filters": [], **filters}
        )
        answer = self._call(request, version)
        told = sorted(
            (one.transactional_id, one.transaction_state, self.number(one.producer_id))
            for one in answer.transaction_states
        )
        self._say(f"list v{version}", answer.error_code, answer.unknown_state_filters, told)


def tv1(call: Call) -> list[str]:
    """Clients up to 3.x: partitions are added, the epoch stays."""
    script = Script(call)
    script.find("x")
    script.init("")
    script.init(timeout_ms=0)
    script.init(timeout_ms=900_001)
    script.state("")
    script.state("nobody")
    script.init(expected=(UNKNOWN_ID, -1))
    script.init()
    script.state()
    script.end(COMMIT)
    script.end(ABORT)
    script.add(0)
    script.state()
    _refusals_of_tv1(script)
    for commit in (COMMIT, ABORT):
        script.add(0)
        script.end(commit)
        script.state()
        script.end(commit)
        script.end(not commit)
        script.add(1, verify=True, version=4)
    script.add_offsets("g")
    script.end(COMMIT)
    script.state()
    _instances(script)
    return script.lines


def _refusals_of_tv1(script: Script) -> None:
    known = (script.id, script.epoch)
    old, other = (script.id, script.epoch + 1), (UNKNOWN_ID, 0)
    for version in (0, 1, 2, 3):
        script.add(0, producer=old, version=version)
    for version in (0, 1, 2, 4):
        script.end(COMMIT, producer=old, version=version)
    script.add_offsets("g", producer=old, version=1)
    script.add_offsets("g", producer=old, version=3)
    script.add_offsets("g", producer=other)
    script.add(0, producer=other)
    script.add(0, transactional_id="nobody", producer=known)
    script.add(0, transactional_id="", producer=known)
    script.add(0, 7)
    script.add(0, topic="nowhere")
    script.end(COMMIT, producer=other)
    script.end(COMMIT, transactional_id="nobody", producer=known)
    script.end(COMMIT, transactional_id="", producer=known)
    script.add(0, 1, verify=True, version=4)
    script.add(0, 1, verify=True, version=5)
    script.add(0, producer=old, verify=True, version=4)
    script.add(0, producer=other, verify=True, version=4)
    script.state()


def _instances(script: Script) -> None:
    """Another instance, one that goes on after an error, and one that was fenced (KIP-360)."""
    first = (script.id, script.epoch)
    script.init(expected=first)
    script.init(expected=first)
    second = (script.id, script.epoch)
    script.init()
    script.init(expected=second)
    script.init(expected=first, version=3)
    script.init(expected=(UNKNOWN_ID, 0))
    script.add(2, producer=second)
    script.add(2)
    open_ = (script.id, script.epoch)
    script.init(once=True)
    script.init()
    script.add(2, producer=open_)
    script.end(COMMIT, producer=open_)
    script.end(COMMIT, producer=open_, version=1)
    script.add(0, 1, 2)
    script.init(expected=(script.id, script.epoch), once=True)
    script.state()
    script.init(timeout_ms=1000)
    script.add(1)
    timed_out = (script.id, script.epoch)
    script.wait_for_abort()
    script.state()
    script.end(COMMIT, producer=timed_out)
    script.init(expected=timed_out)
    script.init()
    script.init("other")
    script.list()
    script.list(state_filters=["Empty", "Lost"])
    script.list(state_filters=["Ongoing"])
    script.list(producer_id_filters=[UNKNOWN_ID])
    script.list(duration_filter=3_600_000)


def tv2(call: Call) -> list[str]:
    """Clients of Kafka 4 (KIP-890): the epoch grows with each end."""
    script = Script(call)
    script.find("x")
    script.init(version=5)
    before = (script.id, script.epoch)
    script.end(COMMIT, version=5)
    script.end(ABORT, version=5)
    script.state()
    script.end(ABORT, version=5, producer=before)
    script.end(COMMIT, version=5, producer=before)
    for commit in (COMMIT, ABORT):
        script.add(0, version=5)
        script.state()
        before = (script.id, script.epoch)
        script.end(COMMIT, version=5, producer=(before[0], before[1] - 1))
        script.end(commit, version=5)
        script.state()
        script.end(commit, version=5, producer=before)
        script.end(not commit, version=5, producer=before)
        script.end(COMMIT, version=5)
        script.end(COMMIT, version=5, producer=(UNKNOWN_ID, 0))
        script.end(ABORT, version=5)
        script.end(ABORT, version=5, producer=before)
    script.add(0, 1, version=5, verify=True)
    # An older client after a newer one, under the same id.
    script.add(1)
    script.end(COMMIT)
    script.state()
    script.add(1)
    script.init(once=True)
    script.state()
    script.init(version=5, timeout_ms=1000)
    script.add(2, version=5)
    script.wait_for_abort()
    script.state()
    script.init(version=5)
    return script.lines


def exhausted(call: Call, skip: Callable[[int], None] | None = None) -> list[str]:
    """An end, an instance and a fencing where the epochs are used up: 32,000 requests each, or
    `skip`, which lets the producer have this epoch."""
    script = Script(call)
    script.find("x")
    script.init(version=5)
    script.reach(32_765, skip)
    script.end(ABORT, version=5)
    script.add(0, version=5)
    before = (script.id, script.epoch)
    script.end(COMMIT, version=5)
    script.state()
    script.end(COMMIT, version=5, producer=before)
    script.end(ABORT, version=5, producer=before)
    script.init(version=5, expected=before)
    script.reach(32_765, skip)
    script.init(version=5)
    last = (script.id, script.epoch)
    script.init(version=5, expected=last)
    script.init(version=5, expected=last)
    script.reach(32_766, skip)
    script.add(0, version=5)
    script.init(version=5, once=True)
    script.state()
    script.init(version=5)
    return script.lines
