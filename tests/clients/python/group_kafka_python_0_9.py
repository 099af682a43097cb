"""Offsets of groups in kafka-python 0.9.5, which commits in version 0 and joins no group."""

from __future__ import annotations

from importlib import import_module
from typing import Any, NoReturn

from tests.clients.python.group_host import Committed, Notes, Words, serve

# By name: the type checker would find the release in the tests' own environment, not this one.
kafka: Any = import_module("kafka")
common: Any = import_module("kafka.common")


def join(words: Words, notes: Notes) -> NoReturn:
    raise NotImplementedError("this release has no groups")


def put(words: Words, offsets: dict[int, int]) -> None:
    client = kafka.KafkaClient(words["bootstrap"])
    metadata = words["metadata"].encode()
    client.send_offset_commit_request(
        words["group"].encode(),
        [
            common.OffsetCommitRequest(words["topic"].encode(), partition, offset, metadata)
            for partition, offset in offsets.items()
        ],
    )
    client.close()


def get(words: Words, partitions: list[int]) -> list[Committed]:
    client = kafka.KafkaClient(words["bootstrap"])
    wanted = [
        common.OffsetFetchRequest(words["topic"].encode(), partition) for partition in partitions
    ]
    # Nothing committed is an error in version 0, as it is here.
    answers = client.send_offset_fetch_request(words["group"].encode(), wanted, fail_on_error=False)
    client.close()
    return [(answer.partition, answer.offset, answer.metadata.decode()) for answer in answers]


if __name__ == "__main__":
    serve(join, put, get)
