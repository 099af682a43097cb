"""Verbs of scripts that commit offsets of groups, within transactions and without."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from protocol.messages.delete_groups import DeleteGroupsRequest
from protocol.messages.join_group import JoinGroupRequest
from protocol.messages.offset_commit import OffsetCommitRequest
from protocol.messages.offset_delete import OffsetDeleteRequest
from protocol.messages.offset_fetch import OffsetFetchRequest
from protocol.messages.sync_group import SyncGroupRequest
from protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from tests.clients.transactions.conversation import NOT_READY, code_name, partitions, until

if TYPE_CHECKING:
    from tests.clients.transactions.conversation import Conversation
    from tests.clients.transactions.scripts import Step

TXN_COMMIT_BY_ID = 6
SEVERAL_GROUPS, FETCH_BY_ID = 8, 10
GROUP_COMMIT_VERSION = 7


def txn_commit(talk: Conversation, step: Step) -> str:
    """TxnOffsetCommit: t:0=5 is the offset 5 of a partition."""
    version = step.version or 0
    options = step.options
    producer_id, epoch = talk.producer(options["by"])
    member, generation = _member(talk, options)
    metadata = "m" * int(options.get("metadata", 0))
    topic = TxnOffsetCommitRequest.Topic
    names = partitions(step.words)
    request = TxnOffsetCommitRequest(
        transactional_id=talk.own(options["id"]),
        group_id=talk.own(step.words[0]),
        producer_id=producer_id,
        producer_epoch=epoch,
        generation_id_or_member_epoch=generation,
        member_id=member,
        group_instance_id=options.get("instance"),
        topics=[
            topic(
                partitions=[
                    topic.Partition(
                        partition_index=int(number),
                        committed_offset=int(offset),
                        committed_metadata=metadata,
                    )
                    for number, offset in (one.split("=") for one in entries)
                ],
                **talk.named(name, version, TXN_COMMIT_BY_ID),
            )
            for name, entries in names.items()
        ],
    )
    answer = talk.call(request, version)
    return _committed(talk, names, answer.topics, by_id=version >= TXN_COMMIT_BY_ID)


def _member(talk: Conversation, options: dict[str, str]) -> tuple[str, int]:
    name, given = options.get("member", ""), options.get("generation", "-1")
    member = talk.members[name][0] if name in talk.members else name
    if given[0] in talk.members:
        return member, talk.members[given[0]][1] + int(given[1:] or 0)
    return member, int(given)


def _committed(
    talk: Conversation, names: dict[str, list[str]], topics: list[Any], *, by_id: bool
) -> str:
    found = sorted(
        f"{name if by_id else talk.plain(topic.name)}:{entry.partition_index} "
        f"{code_name(entry.error_code)}"
        for name, topic in zip(names, topics, strict=False)
        for entry in topic.partitions
    )
    return ", ".join(found) or "(nothing)"


def group_commit(talk: Conversation, step: Step) -> str:
    """OffsetCommit, by no member."""
    topic = OffsetCommitRequest.Topic
    names = partitions(step.words)
    request = OffsetCommitRequest(
        group_id=talk.own(step.words[0]),
        topics=[
            topic(
                name=talk.own(name),
                partitions=[
                    topic.Partition(
                        partition_index=int(number),
                        committed_offset=int(offset),
                        committed_metadata="",
                    )
                    for number, offset in (one.split("=") for one in entries)
                ],
            )
            for name, entries in names.items()
        ],
    )
    answers: list[Any] = []

    def answered() -> bool:
        answers.append(talk.call(request, GROUP_COMMIT_VERSION))
        return answers[-1].topics[0].partitions[0].error_code not in NOT_READY

    until(answered)
    return _committed(talk, names, answers[-1].topics, by_id=False)


def offset_fetch(talk: Conversation, step: Step) -> str:
    """OffsetFetch of partitions, or of `all` that the group has; `stable` requires it to be so."""
    version = step.version or 0
    names = partitions(step.words)
    group, stable = talk.own(step.words[0]), step.has("stable")
    if version < SEVERAL_GROUPS:
        old = [
            OffsetFetchRequest.Topic(name=talk.own(name), partition_indexes=[*map(int, numbers)])
            for name, numbers in names.items()
        ]
        request = OffsetFetchRequest(
            group_id=group, topics=None if step.has("all") else old, require_stable=stable
        )
        whole = talk.call(request, version)
    else:
        topics = [
            OffsetFetchRequest.Group.Topic(
                partition_indexes=[*map(int, numbers)], **talk.named(name, version, FETCH_BY_ID)
            )
            for name, numbers in names.items()
        ]
        asked = OffsetFetchRequest.Group(group_id=group, topics=None if step.has("all") else topics)
        request = OffsetFetchRequest(groups=[asked], require_stable=stable)
        (whole,) = talk.call(request, version).groups
    found = sorted(
        f"{entry.partition_index} {code_name(entry.error_code)} {entry.committed_offset}"
        for topic in whole.topics
        for entry in topic.partitions
    )
    return "; ".join([code_name(whole.error_code), *found])


def join(talk: Conversation, step: Step) -> str:
    """JoinGroup and SyncGroup of one member, which leads the group."""
    instance = step.options.get("instance")
    request = JoinGroupRequest(
        group_id=talk.own(step.words[0]),
        session_timeout_ms=30_000,
        rebalance_timeout_ms=30_000,
        member_id="",
        group_instance_id=instance,
        protocol_type="consumer",
        protocols=[JoinGroupRequest.Protocol(name="range", metadata=b"x")],
    )
    answers: list[Any] = []

    def answered() -> bool:
        answers.append(talk.call(request, 5 if instance else 3))
        return answers[-1].error_code not in NOT_READY

    until(answered)
    joined = answers[-1]
    talk.members[step.options["as"]] = (joined.member_id, joined.generation_id)
    sync = SyncGroupRequest(
        group_id=request.group_id,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        group_instance_id=instance,
        assignments=[SyncGroupRequest.Assignment(member_id=joined.member_id, assignment=b"y")],
    )
    synced = talk.call(sync, 3)
    codes = f"{code_name(joined.error_code)}, {code_name(synced.error_code)}"
    return f"{codes}, generation {joined.generation_id}"


def delete_offsets(talk: Conversation, step: Step) -> str:
    """OffsetDelete."""
    topic = OffsetDeleteRequest.Topic
    names = partitions(step.words)
    request = OffsetDeleteRequest(
        group_id=talk.own(step.words[0]),
        topics=[
            topic(
                name=talk.own(name),
                partitions=[topic.Partition(partition_index=int(number)) for number in numbers],
            )
            for name, numbers in names.items()
        ],
    )
    answer = talk.call(request, 0)
    found = _committed(talk, names, answer.topics, by_id=False)
    return f"{code_name(answer.error_code)}; {found}"


def delete_group(talk: Conversation, step: Step) -> str:
    """DeleteGroups of one group."""
    answer = talk.call(DeleteGroupsRequest(groups_names=[talk.own(step.words[0])]), 2)
    return code_name(answer.results[0].error_code)


VERBS = {
    "txn-commit": txn_commit,
    "group-commit": group_commit,
    "offset-fetch": offset_fetch,
    "join": join,
    "delete-offsets": delete_offsets,
    "delete-group": delete_group,
}
