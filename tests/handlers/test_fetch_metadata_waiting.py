"""Fetches of the metadata log that wait, who sends them, and where they are served."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from protocol.errors import ErrorCode
from protocol.messages.api_versions import ApiVersionsRequest
from protocol.messages.metadata import MetadataRequest
from protocol.registry import APIS
from protocol.schema import ZERO_UUID
from tests.support.caller import Caller, Timed
from tests.support.metadata_fetches import LONG_MS, VERSIONS, asking, entry_of
from tests.support.running_controller import RunningController
from tests.support.scraped import page_of
from tests.support.wire_client import ConnectionClosed

if TYPE_CHECKING:
    from pathlib import Path

FETCH = APIS[1]


def stored(node: RunningController) -> bytes:
    """The active segment of the log, as it is on the disk."""
    segment = node.metadata.log.active
    return segment.file.pread(segment.written_size, 0)


# Waiting


@pytest.mark.parametrize("version", VERSIONS)
def test_who_has_everything_waits_for_as_long_as_it_wants(
    node: RunningController, follower: Caller, version: int
) -> None:
    request = asking(node.end_offset, node.epoch, node.epoch, wait_ms=150)

    with Timed() as took:
        entry = entry_of(follower.call(request, version))

    assert (entry.error_code, bytes(entry.records)) == (0, b"")
    assert entry.high_watermark == node.end_offset
    assert 140 <= took.ms < LONG_MS


def test_a_wait_of_zero_is_answered_at_once(node: RunningController, follower: Caller) -> None:
    with Timed() as took:
        entry = entry_of(follower.call(asking(node.end_offset, node.epoch, node.epoch), 17))

    assert bytes(entry.records) == b""
    assert took.ms < LONG_MS


def test_a_change_is_sent_to_all_who_wait_for_it(own_node: RunningController) -> None:
    end_offset = own_node.end_offset
    followers = [own_node.connect() for _ in range(3)]
    request = asking(end_offset, own_node.epoch, own_node.epoch, wait_ms=LONG_MS)
    sent = [follower.send(request, 17) for follower in followers]
    followers[0].see_nothing_come()

    with Timed() as took:
        with own_node.connect_as_client() as client:
            client.create_topic("orders")
        entries = [
            entry_of(follower.receive(FETCH, 17, number))
            for follower, number in zip(followers, sent, strict=True)
        ]

    assert took.ms < LONG_MS
    for entry, follower in zip(entries, followers, strict=True):
        assert stored(own_node).endswith(bytes(entry.records))
        assert entry.high_watermark == own_node.end_offset > end_offset
        follower.close()


def test_who_waits_and_goes_is_forgotten(own_node: RunningController) -> None:
    with own_node.connect() as follower:
        request = asking(own_node.end_offset, own_node.epoch, own_node.epoch, wait_ms=LONG_MS)
        follower.send(request, 17)
        follower.see_nothing_come()
        assert len(own_node.controller.partition.waits) == 1
    for _ in range(1000):
        if own_node.run(lambda: len(own_node.controller.partition.waits)) == 0:
            break
    else:
        pytest.fail("the wait of a lost connection is still there")


def test_a_stop_answers_those_who_wait(tmp_path: Path) -> None:
    with RunningController(tmp_path / "data") as node:
        follower = node.connect()
        request = asking(node.end_offset, node.epoch, node.epoch, wait_ms=60_000)
        sent = follower.send(request, 17)
        follower.see_nothing_come()
    entry = entry_of(follower.receive(FETCH, 17, sent))
    follower.close()

    assert (entry.error_code, bytes(entry.records)) == (0, b"")


def test_from_version_18_a_follower_hears_at_once_of_a_higher_watermark(
    node: RunningController, follower: Caller
) -> None:
    here = node.end_offset

    with Timed() as took:
        behind = asking(here, node.epoch, node.epoch, wait_ms=LONG_MS, high_watermark=here - 1)
        assert entry_of(follower.call(behind, 18)).high_watermark == here
    assert took.ms < LONG_MS

    with Timed() as took:
        level = asking(here, node.epoch, node.epoch, wait_ms=150, high_watermark=here)
        assert entry_of(follower.call(level, 18)).high_watermark == here
    assert took.ms >= 140


# The two kinds of listeners


def test_clients_do_not_see_the_metadata_log(node: RunningController) -> None:
    with node.connect_as_client() as client:
        by_id = client.call(asking(0, 0, -1), 17).responses[0].partitions[0]
        by_name = client.call(asking(0, 0, -1), 12).responses[0].partitions[0]

    assert by_id.error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert by_name.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_the_controllers_listener_serves_followers_and_not_clients(
    node: RunningController,
) -> None:
    with node.connect() as follower:
        served = {one.api_key for one in follower.call(ApiVersionsRequest(), 0).api_keys}
        with pytest.raises(ConnectionClosed):
            follower.call(MetadataRequest(topics=None), 12)

    assert {1, 18, 55, 59, 60} <= served
    assert served & {0, 2, 3, 8, 9, 10, 11, 12, 13, 14, 22, 24, 68, 75} == set()


def test_requests_on_both_kinds_of_listeners_are_counted_together(
    own_node: RunningController,
) -> None:
    for connect in (own_node.connect, own_node.connect_as_client, own_node.connect):
        with connect() as caller:
            caller.call(ApiVersionsRequest(), 2)
    with own_node.connect() as follower:
        follower.call(asking(0, 0, own_node.epoch), 17)

    lines = own_node.run(lambda: page_of(own_node.broker.metric_sources())).splitlines()

    counted = [line for line in lines if line.startswith("triglot_requests_total")]
    assert counted == [
        'triglot_requests_total{api="ApiVersions",version="2"} 3',
        'triglot_requests_total{api="Fetch",version="17"} 1',
    ]


# Who follows


def followers(node: RunningController) -> dict[int, tuple[bytes, int]]:
    """(directory, log end) by id."""
    found = node.run(lambda: node.controller.observers.live(node.broker.now_ms()))
    return {one.replica_id: (one.directory_id, one.log_end_offset) for one in found}


def test_who_fetches_under_an_id_is_remembered(own_node: RunningController) -> None:
    end_offset, epoch = own_node.end_offset, own_node.epoch
    with own_node.connect() as follower:
        for replica_id in (-1, -2, 5):
            follower.call(asking(end_offset - 1, epoch, epoch, replica_id=replica_id), 13)
        follower.call(asking(end_offset, epoch, epoch, replica_id=6, directory_id=b"d" * 16), 17)

    assert followers(own_node) == {5: (ZERO_UUID, end_offset - 1), 6: (b"d" * 16, end_offset)}


def test_who_is_refused_or_sent_elsewhere_is_not_remembered(own_node: RunningController) -> None:
    own_node.take_snapshot()
    epoch = own_node.epoch
    with own_node.connect() as follower:
        for request in (
            asking(0, 0, epoch, replica_id=5),
            asking(10**6, epoch, epoch, replica_id=5),
            asking(-1, epoch, epoch, replica_id=5),
            asking(1, epoch, epoch + 1, replica_id=5),
        ):
            follower.call(request, 17)

    assert followers(own_node) == {}
