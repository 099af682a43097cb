"""Writes when brokers refuse, move or go away: sent again only if it is safe."""

from __future__ import annotations

import pytest

from client.cluster import ProduceUnknown
from client.errors import Refused
from protocol.records.builder import build_batch
from protocol.records.legacy import build_messages
from tests.client.scripted_cluster import (
    BATCH,
    NOT_LEADER,
    PLACE,
    PRODUCE,
    TIMED_OUT,
    TOO_FEW_REPLICAS,
    Broker,
    breaks,
    cluster,
    in_turn,
    produced,
)


def test_a_write_is_not_repeated_when_its_answer_is_lost() -> None:
    with Broker({PRODUCE: breaks}) as broker, cluster(broker) as client:
        with pytest.raises(ProduceUnknown, match=r"lost the connection to .* at Produce") as raised:
            client.produce(PLACE, [BATCH])
        assert (raised.value.partition, raised.value.stored, raised.value.code) == (PLACE, 0, 0)
        assert not raised.value.may_send_rest
        assert len(broker.requests(PRODUCE)) == 1


def test_what_was_stored_before_an_answer_was_lost_is_told() -> None:
    answers = in_turn(produced(70), produced(71), breaks)
    with Broker({PRODUCE: answers}) as broker, cluster(broker) as client:
        with pytest.raises(ProduceUnknown) as raised:
            client.produce(PLACE, [BATCH] * 4)
        assert (raised.value.stored, raised.value.base_offset) == (2, 70)


def test_only_what_was_not_stored_is_sent_to_the_next_leader() -> None:
    refused = produced(-1, NOT_LEADER)
    answers = in_turn(produced(70), refused, refused, produced(71), produced(72))
    entries = [build_batch([(1, b"k%d" % number, b"", [])]) for number in range(3)]
    with Broker({PRODUCE: answers}) as broker, cluster(broker) as client:
        assert client.produce(PLACE, entries) == 70
        sent = [
            bytes(request.topic_data[0].partition_data[0].records)
            for request in broker.requests(PRODUCE)
        ]
        assert sent == [*entries, *entries[1:]]


def test_an_order_that_was_broken_is_not_mended_by_sending_again() -> None:
    answers = in_turn(produced(70), produced(-1, NOT_LEADER), produced(71))
    with Broker({PRODUCE: answers}) as broker, cluster(broker) as client:
        with pytest.raises(ProduceUnknown, match=r"NOT_LEADER_OR_FOLLOWER \(6\)") as raised:
            client.produce(PLACE, [BATCH] * 3)
        assert (raised.value.stored, raised.value.may_send_rest) == (1, False)
        assert len(broker.requests(PRODUCE)) == 3


def test_offsets_out_of_order_are_told() -> None:
    with (
        Broker({PRODUCE: in_turn(produced(70), produced(60))}) as broker,
        cluster(broker) as client,
        pytest.raises(ProduceUnknown, match="offsets were given out of order"),
    ):
        client.produce(PLACE, [BATCH] * 2)


def test_what_a_broker_is_not_ready_for_is_refused_in_the_end() -> None:
    answer = produced(-1, TOO_FEW_REPLICAS)
    with Broker({PRODUCE: in_turn(answer)}) as broker, cluster(broker, timeout_s=0.4) as client:
        with pytest.raises(Refused, match=r"NOT_ENOUGH_REPLICAS \(19\)") as raised:
            client.produce(PLACE, [BATCH])
        assert raised.value.code == TOO_FEW_REPLICAS
        assert len(broker.requests(PRODUCE)) > 1


def test_a_write_that_timed_out_may_have_been_stored() -> None:
    answer = produced(-1, TIMED_OUT)
    with Broker({PRODUCE: in_turn(answer)}) as broker, cluster(broker) as client:
        with pytest.raises(ProduceUnknown, match=r"REQUEST_TIMED_OUT \(7\)"):
            client.produce(PLACE, [BATCH])
        assert len(broker.requests(PRODUCE)) == 1


def test_a_broker_takes_the_formats_of_its_age() -> None:
    expected = {(0, 0): (0, 0), (0, 1): (0, 0), (0, 2): (0, 1), (0, 9): (0, 2), (3, 13): (2, 2)}
    for versions, formats in expected.items():
        with Broker({}, {PRODUCE: versions}) as broker, cluster(broker) as client:
            assert client.formats(PLACE) == formats
            for magic in {0, 1, 2} - set(range(formats[0], formats[1] + 1)):
                if magic == 1 and formats[1] == 0:
                    continue
                entry = build_messages([(1, b"k", b"v", ())], magic=1) if magic < 2 else BATCH
                wanted = f"^orders-0 takes no records of format {magic}: "
                with pytest.raises(Refused, match=wanted) as raised:
                    client.produce(PLACE, [entry], magic=magic)
                assert raised.value.code == 35
