"""Damage costs the batch that it is in: what lies before it is served, to clients of every age."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from protocol.errors import ErrorCode
from tests.support.caller import Caller, batch
from tests.support.old_sets import seen

if TYPE_CHECKING:
    from tests.support.broker_process import BrokerProcess

LENGTH = 8
OLD_AND_NEW = (1, 3, 9, 12)


@pytest.mark.parametrize("version", OLD_AND_NEW)
def test_what_lies_before_a_damaged_batch_is_served(
    broker: BrokerProcess, caller: Caller, topic: str, version: int
) -> None:
    caller.create_topic(topic)
    values = [b"first", b"second", b"damaged"]
    sent = [batch(value) for value in values]
    for records in sent:
        assert caller.produce(topic, records).error_code == 0
    with (broker.data / f"{topic}-0" / f"{0:020d}.log").open("r+b") as log:
        log.seek(len(sent[0]) + len(sent[1]) + LENGTH)
        log.write(b"\x40")

    before = caller.fetch(topic, 0, version=version)
    damaged = caller.fetch(topic, 2, version=version)

    assert before.error_code == 0
    assert [record.value for record in seen(before.records)] == values[:2]
    assert damaged.error_code == ErrorCode.CORRUPT_MESSAGE
