"""Offsets after a start: few at once, many on a thread, while clients are told to wait."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from broker.coordinator.loading.loads import AT_ONCE_BYTES
from protocol.errors import ErrorCode
from tests.support.group_caller import GroupCaller

if TYPE_CHECKING:
    from tests.support.broker_process import BrokerProcess

TOPIC = "t"
METADATA = "m" * 4000
GROUPS = 3 * AT_ONCE_BYTES // len(METADATA)
LOADED_WITHIN_S = 10.0


def committed_by_many(broker: BrokerProcess, groups: int = GROUPS) -> None:
    with GroupCaller(broker.host, broker.port) as caller:
        caller.create_topic(TOPIC, partitions=1)
        for number in range(groups):
            answer = caller.commit(f"g{number}", {(TOPIC, 0): (number, METADATA)})
            assert set(answer.values()) == {0}


def all_offsets(broker: BrokerProcess, groups: int = GROUPS) -> list[int]:
    """Of every group; who is told to wait asks again."""
    found: list[int] = []
    end_s = time.monotonic() + LOADED_WITHIN_S
    with GroupCaller(broker.host, broker.port) as caller:
        while len(found) < groups:
            (answer,) = caller.fetch_offsets(f"g{len(found)}", [(TOPIC, 0)]).groups
            if answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                assert time.monotonic() < end_s
                continue
            assert answer.error_code == 0
            found.append(answer.topics[0].partitions[0].committed_offset)
    return found


def test_many_offsets_are_loaded_beside_the_start_after_a_clean_stop(
    own_broker: BrokerProcess,
) -> None:
    own_broker.start()
    committed_by_many(own_broker)
    assert own_broker.stop() == 0
    own_broker.start()
    assert all_offsets(own_broker) == list(range(GROUPS))
    assert "groups loaded" in own_broker.output()


def test_and_after_a_kill(own_broker: BrokerProcess) -> None:
    own_broker.start()
    committed_by_many(own_broker)
    own_broker.kill()
    own_broker.start()
    assert all_offsets(own_broker) == list(range(GROUPS))


def test_few_offsets_are_there_with_the_first_answer(own_broker: BrokerProcess) -> None:
    own_broker.start()
    committed_by_many(own_broker, 5)
    assert own_broker.stop() == 0
    own_broker.start()
    with GroupCaller(own_broker.host, own_broker.port) as caller:
        found = caller.committed("g4", [(TOPIC, 0)])
    assert found[TOPIC, 0].offset == 4


def test_a_stop_amid_the_load_is_clean(own_broker: BrokerProcess) -> None:
    own_broker.start()
    committed_by_many(own_broker)
    assert own_broker.stop() == 0
    for _ in range(5):
        own_broker.start()
        run = own_broker.run
        assert own_broker.stop() == 0
        assert run is not None
        assert "Traceback" not in run.output()
    own_broker.start()
    assert all_offsets(own_broker) == list(range(GROUPS))
