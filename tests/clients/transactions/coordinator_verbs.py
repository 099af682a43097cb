"""Verbs of scripts that ask the coordinator of transactions, or tell of what it holds."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from protocol.errors import ErrorCode
from protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from protocol.messages.add_partitions_to_txn import Topic as AddedTopic
from protocol.messages.describe_transactions import DescribeTransactionsRequest
from protocol.messages.end_txn import EndTxnRequest
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.init_producer_id import InitProducerIdRequest
from protocol.messages.list_transactions import ListTransactionsRequest
from tests.clients.transactions.conversation import NOT_READY, code_name, partitions, until

if TYPE_CHECKING:
    from tests.clients.transactions.conversation import Conversation
    from tests.clients.transactions.scripts import Step

DEFAULT_TIMEOUT_MS = 60_000
#: The first version of EndTxn that answers a producer id and epoch.
END_ANSWERS_EPOCH = 5
#: The first version of AddPartitionsToTxn that has several transactions.
BATCHED = 4
SEVERAL_KEYS = 4


def init(talk: Conversation, step: Step) -> str:
    """InitProducerId. Asked again as long as another transaction is being ended, unless `once`."""
    producer_id, epoch = talk.producer(step.options.get("by"))
    name = step.options["id"]
    request = InitProducerIdRequest(
        transactional_id=None if name == "null" else talk.own(name),
        transaction_timeout_ms=int(step.options.get("timeout", DEFAULT_TIMEOUT_MS)),
        producer_id=int(step.options.get("pid", producer_id)),
        producer_epoch=int(step.options.get("epoch", epoch)),
        enable2_pc=step.has("2pc"),
        keep_prepared_txn=step.has("keep"),
    )
    again = {*NOT_READY, *({ErrorCode.CONCURRENT_TRANSACTIONS} if not step.has("once") else ())}
    answers: list[Any] = []

    def answered() -> bool:
        answers.append(talk.call(request, step.version or 0))
        return answers[-1].error_code not in again

    until(answered)
    answer = answers[-1]
    if "as" in step.options and answer.error_code == 0:
        talk.producers[step.options["as"]] = (answer.producer_id, answer.producer_epoch)
    found = talk.producer_label(answer.producer_id, answer.producer_epoch)
    if (step.version or 0) >= 6 and answer.ongoing_txn_producer_id >= 0:
        ongoing = answer.ongoing_txn_producer_id, answer.ongoing_txn_producer_epoch
        found += f" ongoing {talk.producer_label(*ongoing)}"
    return f"{code_name(answer.error_code)} {found}"


def add(talk: Conversation, step: Step) -> str:
    """AddPartitionsToTxn for one transaction, which a later version has in a list of one."""
    asked = _topics(talk, partitions(step.words))
    name = step.options["id"]
    if (step.version or 0) >= BATCHED:
        return _add_batched(talk, step, [(name, step.options["by"], asked, False)])
    producer_id, epoch = talk.producer(step.options["by"])
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=talk.own(name),
        v3_and_below_producer_id=producer_id,
        v3_and_below_producer_epoch=epoch,
        v3_and_below_topics=asked,
    )
    answer = talk.call(request, step.version or 0)
    return _added(talk, answer.results_by_topic_v3_and_below)


def add_many(talk: Conversation, step: Step) -> str:
    """AddPartitionsToTxn for several: each word is id/producer/partitions[/verify]."""
    asked = []
    for word in step.words:
        name, producer, names, *verify = word.split("/")
        asked.append((name, producer, _topics(talk, partitions([names])), bool(verify)))
    return _add_batched(talk, step, asked)


def _topics(talk: Conversation, names: dict[str, list[str]]) -> list[AddedTopic]:
    return [
        AddedTopic(name=talk.own(topic), partitions=[*map(int, numbers)])
        for topic, numbers in names.items()
    ]


def _add_batched(
    talk: Conversation, step: Step, asked: list[tuple[str, str, list[AddedTopic], bool]]
) -> str:
    transactions = []
    for name, producer, topics, verify in asked:
        producer_id, epoch = talk.producer(producer)
        transactions.append(
            AddPartitionsToTxnRequest.Transaction(
                transactional_id=talk.own(name),
                producer_id=producer_id,
                producer_epoch=epoch,
                verify_only=verify,
                topics=topics,
            )
        )
    request = AddPartitionsToTxnRequest(transactions=transactions)
    answer = talk.call(request, step.version or 0)
    by_id = sorted(
        f"{talk.plain(found.transactional_id)} {_added(talk, found.topic_results)}"
        for found in answer.results_by_transaction
    )
    return "; ".join([code_name(answer.error_code), *by_id])


def _added(talk: Conversation, topics: list[Any]) -> str:
    found = sorted(
        f"{talk.plain(topic.name)}:{entry.partition_index} {code_name(entry.partition_error_code)}"
        for topic in topics
        for entry in topic.results_by_partition
    )
    return ", ".join(found) or "(nothing)"


def offsets(talk: Conversation, step: Step) -> str:
    """AddOffsetsToTxn."""
    producer_id, epoch = talk.producer(step.options["by"])
    request = AddOffsetsToTxnRequest(
        transactional_id=talk.own(step.options["id"]),
        producer_id=producer_id,
        producer_epoch=epoch,
        group_id=talk.own(step.words[0]),
    )
    return code_name(talk.call(request, step.version or 0).error_code)


def end(talk: Conversation, step: Step) -> str:
    """EndTxn; what it has begun has ended afterwards, unless `unsettled`."""
    producer_id, epoch = talk.producer(step.options["by"])
    request = EndTxnRequest(
        transactional_id=talk.own(step.options["id"]),
        producer_id=producer_id,
        producer_epoch=epoch,
        committed=step.has("commit"),
    )
    version = step.version or 0
    answer = talk.call(request, version)
    if answer.error_code == 0 and not step.has("unsettled"):
        talk.settle(step.options["id"])
    if version >= END_ANSWERS_EPOCH and answer.error_code == 0:
        producer_id, epoch = answer.producer_id, answer.producer_epoch
    if "as" in step.options:
        talk.producers[step.options["as"]] = (producer_id, epoch)
    if version < END_ANSWERS_EPOCH:
        return code_name(answer.error_code)
    found = talk.producer_label(answer.producer_id, answer.producer_epoch)
    return f"{code_name(answer.error_code)} {found}"


def find(talk: Conversation, step: Step) -> str:
    """FindCoordinator; from version 4 for each of the names between the commas."""
    version = step.version or 0
    name = step.words[0]
    names = [talk.own(one) for one in name.split(",")]
    request = FindCoordinatorRequest(
        key=talk.own(name), key_type=int(step.options["type"]), coordinator_keys=names
    )
    answers: list[list[Any]] = []

    def answered() -> bool:
        answer = talk.call(request, version)
        answers.append(answer.coordinators if version >= SEVERAL_KEYS else [answer])
        return not any(found.error_code in NOT_READY for found in answers[-1])

    until(answered)
    return ", ".join(
        f"{code_name(found.error_code)} {'somebody' if found.node_id >= 0 else 'nobody'}"
        for found in answers[-1]
    )


def describe(talk: Conversation, step: Step) -> str:
    """DescribeTransactions."""
    names = step.words[0].split(",") if step.words else []
    request = DescribeTransactionsRequest(transactional_ids=[talk.own(name) for name in names])
    answer = talk.call(request, 0)
    return "; ".join(_described(talk, found) for found in answer.transaction_states) or "(nothing)"


def _described(talk: Conversation, found: Any) -> str:
    words = [repr(talk.plain(found.transactional_id)), code_name(found.error_code)]
    if found.error_code == 0:
        started = found.transaction_start_time_ms
        topics = {
            talk.plain(topic.topic)
            if topic.topic == "__consumer_offsets"
            else f"{talk.plain(topic.topic)}:{number}"
            for topic in found.topics
            for number in topic.partitions
        }
        words += [
            found.transaction_state,
            talk.producer_label(found.producer_id, found.producer_epoch),
            f"{found.transaction_timeout_ms} ms",
            "started" if started > 0 else str(started),
            "[" + ", ".join(sorted(topics)) + "]",
        ]
    return " ".join(words)


def list_transactions(talk: Conversation, step: Step) -> str:
    """ListTransactions; those of other tellings are left out."""
    options = step.options
    wanted = options.get("pids", "").split(",") if options.get("pids") else []
    pattern = options.get("pattern")
    request = ListTransactionsRequest(
        state_filters=options["states"].split(",") if options.get("states") else [],
        producer_id_filters=[talk.producer(name)[0] for name in wanted],
        duration_filter=int(options.get("duration", -1)),
        transactional_id_pattern=None if pattern is None else talk.own_pattern(pattern),
    )
    answer = talk.call(request, step.version or 0)
    found = sorted(
        f"{talk.plain(one.transactional_id)} {talk.label(one.producer_id)} {one.transaction_state}"
        for one in answer.transaction_states
        if talk.is_own(one.transactional_id)
    )
    unknown = [f"unknown: {sorted(answer.unknown_state_filters)}"] * bool(
        answer.unknown_state_filters
    )
    return "; ".join([code_name(answer.error_code), *unknown, *found])


def wait(talk: Conversation, step: Step) -> str:
    """Wait until a transaction is in a state; the state that it is in."""
    name, wanted = step.words
    until(lambda: talk.state(talk.own(name)) == wanted)
    return talk.state(talk.own(name))


def sleep(talk: Conversation, step: Step) -> str:
    """Let so many ms pass."""
    time.sleep(int(step.words[0]) / 1000)
    return "(later)"


VERBS = {
    "init": init,
    "add": add,
    "add-many": add_many,
    "offsets": offsets,
    "end": end,
    "find": find,
    "describe": describe,
    "list": list_transactions,
    "wait": wait,
    "sleep": sleep,
}
