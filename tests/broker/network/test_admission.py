"""Connections beyond max.connections, or faster than max.connection.creation.rate, wait; none of
them is closed."""

from __future__ import annotations

import socket
import struct
from typing import TYPE_CHECKING

import pytest

from broker.network.admission import HELD_MAX
from broker.network.listening import ACCEPT_BACKLOG
from config import ConfigError, load
from config.dynamic import with_dynamic
from config.jaas import PLAIN_LOGIN_MODULE
from tests.support.fake_connection import InProcessBroker

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NEVER = {"max_connection_creation_rate": "0", "quota_window_size_seconds": "3600"}
"""Each connection waits for a window, and a window is an hour."""
LISTENERS = "PLAINTEXT://127.0.0.1:0,SLOW://127.0.0.1:0"
PROTOCOLS = "PLAINTEXT:PLAINTEXT,SLOW:PLAINTEXT"
API_VERSIONS_V0 = struct.pack(">ihhih", 10, 18, 0, 7, -1)


@pytest.fixture
def sockets() -> Iterator[list[socket.socket]]:
    opened: list[socket.socket] = []
    yield opened
    for one in opened:
        one.close()


def dial(broker: InProcessBroker, sockets: list[socket.socket], count: int) -> None:
    """Connect so often, and ask for the API versions on each."""
    for _ in range(count):
        one = socket.create_connection((broker.running.host, broker.running.port))
        one.setblocking(False)
        one.sendall(API_VERSIONS_V0)
        sockets.append(one)


def is_answered(one: socket.socket) -> bool:
    try:
        return len(one.recv(4096)) > 0
    except BlockingIOError:
        return False


def test_one_above_the_rate_waits_and_is_served_then(tmp_path: Path) -> None:
    limits = {"max_connection_creation_rate": "2", "quota_window_num": "2"}
    with InProcessBroker(tmp_path / "data", **limits) as broker:
        first, second, third, fourth = (broker.connect() for _ in range(4))

        assert first.is_read()
        assert second.is_read()
        assert not third.is_read()
        assert not fourth.is_read()
        broker.turn_until(third.is_read)
        assert not fourth.is_read(), "it is counted when the one before it is served"
        broker.turn_until(fourth.is_read)
        fourth.feed(API_VERSIONS_V0)
        broker.turn(3)
        assert fourth.answered() == [7]


def test_all_who_come_at_once_are_served(tmp_path: Path, sockets: list[socket.socket]) -> None:
    limits = {"max_connection_creation_rate": "100", "quota_window_num": "2"}
    with InProcessBroker(tmp_path / "data", **limits) as broker:
        for _ in range(5):  # the listener rests and goes on several times
            dial(broker, sockets, 35)
            broker.turn(3)
        waiting = list(sockets)

        def all_are_answered() -> bool:
            waiting[:] = [one for one in waiting if not is_answered(one)]
            return not waiting

        broker.turn_until(all_are_answered)


def test_the_listener_rests_while_many_wait(tmp_path: Path, sockets: list[socket.socket]) -> None:
    with InProcessBroker(tmp_path / "data", **NEVER) as broker:
        dial(broker, sockets, HELD_MAX)
        broker.turn_until(lambda: len(broker.running.broker.connections) == HELD_MAX)
        dial(broker, sockets, 50)
        broker.turn(20)

        # The stock loop had accepted those who were there by then; nobody came after them.
        assert len(broker.running.broker.connections) == HELD_MAX
        assert HELD_MAX < ACCEPT_BACKLOG
        assert not any(is_answered(one) for one in sockets)


def test_a_listener_that_waits_keeps_no_other_waiting(tmp_path: Path) -> None:
    with InProcessBroker(
        tmp_path / "data",
        listeners=LISTENERS,
        listener_security_protocol_map=PROTOCOLS,
        listener_name_slow_max_connection_creation_rate="0",
    ) as broker:
        assert not broker.connect("SLOW").is_read()
        assert broker.connect("PLAINTEXT").is_read()


def test_the_rate_of_the_broker_counts_all_listeners(tmp_path: Path) -> None:
    with InProcessBroker(
        tmp_path / "data",
        listeners=LISTENERS,
        listener_security_protocol_map=PROTOCOLS,
        max_connection_creation_rate="1",
        quota_window_num="2",
        listener_name_slow_max_connection_creation_rate="1000",
        inter_broker_listener_name="OTHER",
    ) as broker:
        assert broker.connect("SLOW").is_read()
        assert not broker.connect("PLAINTEXT").is_read()


def test_the_inter_broker_listener_is_not_counted_for_the_rate_of_the_broker(
    tmp_path: Path,
) -> None:
    with InProcessBroker(
        tmp_path / "data",
        listeners=LISTENERS,
        listener_security_protocol_map=PROTOCOLS,
        max_connection_creation_rate="1",
        quota_window_num="2",
        listener_name_plaintext_max_connection_creation_rate="1000",
    ) as broker:
        assert all(broker.connect("PLAINTEXT").is_read() for _ in range(5))
        assert broker.connect("SLOW").is_read()
        assert not broker.connect("SLOW").is_read()
        assert broker.connect("PLAINTEXT").is_read()


def test_a_rate_may_be_set_and_taken_back_at_run_time(tmp_path: Path) -> None:
    with InProcessBroker(tmp_path / "data", quota_window_size_seconds="3600") as broker:
        current = broker.running.broker.settings
        open_, name = current.current, "max.connection.creation.rate"
        assert broker.connect().is_read()
        current.replace(with_dynamic(open_, all_brokers={name: "0"}, this_broker={}))
        assert not broker.connect().is_read()
    with InProcessBroker(tmp_path / "data") as broker:
        current = broker.running.broker.settings
        of_one = f"listener.name.plaintext.{name}"
        current.replace(with_dynamic(current.current, all_brokers={of_one: "0"}, this_broker={}))
        held = broker.connect()
        assert not held.is_read()
        current.replace(with_dynamic(current.current, all_brokers={}, this_broker={}))
        assert not held.is_read(), "its wait goes on"
        broker.turn_until(held.is_read)
        assert broker.connect().is_read()


def test_those_whom_the_quota_of_their_address_turns_away_keep_nobody_waiting(
    tmp_path: Path,
) -> None:
    with InProcessBroker(
        tmp_path / "data", max_connection_creation_rate="3", quota_window_num="2"
    ) as broker:
        quotas = broker.running.broker.quotas
        quotas.configure({(("ip", "127.0.0.1"),): {"connection_creation_rate": 1.0}})
        assert broker.connect().is_read()
        turned_away = [broker.connect() for _ in range(20)]
        assert not any(one.is_read() for one in turned_away)
        quotas.configure({})
        assert broker.connect().is_read()


def test_the_time_to_authenticate_begins_after_the_wait(tmp_path: Path) -> None:
    with InProcessBroker(
        tmp_path / "data",
        listeners="SASL://127.0.0.1:0",
        listener_security_protocol_map="SASL:SASL_PLAINTEXT",
        max_connection_creation_rate="0",
        connections_authentication_timeout_ms="500",
        sasl_enabled_mechanisms="PLAIN",
        listener_name_sasl_plain_sasl_jaas_config=f'{PLAIN_LOGIN_MODULE} required user_a="b";',
    ) as broker:
        held = broker.connect("SASL")
        assert not held.is_read()
        broker.turn_until(held.is_read)
        assert not held.transport.closed


def test_what_waits_is_closed_with_the_broker(tmp_path: Path, sockets: list[socket.socket]) -> None:
    with InProcessBroker(tmp_path / "data", **NEVER) as broker:
        dial(broker, sockets, HELD_MAX + 5)
        broker.turn_until(lambda: len(broker.running.broker.connections) >= HELD_MAX)


@pytest.mark.parametrize("name", ["max.connections", "max.connection.creation.rate"])
def test_a_limit_below_zero_is_refused_for_a_listener_too(name: str) -> None:
    for one in (name, f"listener.name.x.{name}"):
        with pytest.raises(ConfigError, match="at least 0"):
            load(overrides={one: "-1"})


def test_one_beyond_the_limit_waits_for_a_place(tmp_path: Path) -> None:
    with InProcessBroker(tmp_path / "data", max_connections="2") as broker:
        first, second, third, fourth = (broker.connect() for _ in range(4))

        assert [one.is_read() for one in (first, second, third, fourth)] == [True, True] + [
            False
        ] * 2
        second.lose()
        assert third.is_read()
        assert not fourth.is_read()
        third.feed(API_VERSIONS_V0)
        broker.turn(3)
        assert third.answered() == [7]
        first.lose()
        assert fourth.is_read()


def test_one_that_is_lost_while_it_waits_takes_no_place(tmp_path: Path) -> None:
    with InProcessBroker(tmp_path / "data", max_connections="1") as broker:
        first, second, third = (broker.connect() for _ in range(3))

        second.lose()
        assert not third.is_read()
        first.lose()
        assert third.is_read()


def test_clients_beyond_the_limit_are_served_when_others_go(
    tmp_path: Path, sockets: list[socket.socket]
) -> None:
    with InProcessBroker(tmp_path / "data", max_connections="3") as broker:
        dial(broker, sockets, HELD_MAX)
        broker.turn_until(lambda: len(broker.running.broker.connections) == HELD_MAX)
        dial(broker, sockets, 30)  # the listener rests, and goes on when all who were held are in
        waiting = list(sockets)

        def all_are_answered() -> bool:
            for one in list(waiting):
                if is_answered(one):
                    waiting.remove(one)
                    one.close()
            open_ = len(sockets) - sum(one.fileno() < 0 for one in sockets)
            assert open_ == len(waiting)
            return not waiting

        broker.turn(20)
        assert sum(is_answered(one) for one in waiting[3:]) == 0
        broker.turn_until(all_are_answered)


def test_a_listener_that_is_full_keeps_no_other_waiting(tmp_path: Path) -> None:
    with InProcessBroker(
        tmp_path / "data",
        listeners=LISTENERS,
        listener_security_protocol_map=PROTOCOLS,
        listener_name_slow_max_connections="1",
    ) as broker:
        first, second = broker.connect("SLOW"), broker.connect("SLOW")

        assert (first.is_read(), second.is_read()) == (True, False)
        assert all(broker.connect("PLAINTEXT").is_read() for _ in range(5))
        first.lose()
        assert second.is_read()


def test_the_limit_of_the_broker_counts_all_listeners(tmp_path: Path) -> None:
    with InProcessBroker(
        tmp_path / "data",
        listeners=LISTENERS,
        listener_security_protocol_map=PROTOCOLS,
        max_connections="2",
        inter_broker_listener_name="OTHER",
    ) as broker:
        assert broker.connect("SLOW").is_read()
        assert broker.connect("PLAINTEXT").is_read()
        assert not broker.connect("SLOW").is_read()
        assert not broker.connect("PLAINTEXT").is_read()


def test_who_comes_to_the_inter_broker_listener_takes_the_place_of_the_most_idle_other(
    tmp_path: Path,
) -> None:
    with InProcessBroker(
        tmp_path / "data",
        listeners=LISTENERS,
        listener_security_protocol_map=PROTOCOLS,
        max_connections="2",
    ) as broker:
        idle, busy = broker.connect("SLOW"), broker.connect("SLOW")
        idle.connection.last_active_s -= 1
        assert not broker.connect("SLOW").is_read()

        assert broker.connect("PLAINTEXT").is_read()
        assert (idle.transport.aborted, busy.transport.aborted) == (True, False)
        idle.lose()
        assert busy.is_read()
        assert broker.connect("PLAINTEXT").is_read()
        assert busy.transport.aborted
        busy.lose()
        assert not broker.connect("PLAINTEXT").is_read(), "it has no more places than the broker"


def test_a_limit_of_connections_may_be_set_and_taken_back_at_run_time(tmp_path: Path) -> None:
    with InProcessBroker(tmp_path / "data") as broker:
        current = broker.running.broker.settings
        unlimited, name = current.current, "max.connections"
        first, second = broker.connect(), broker.connect()
        first.connection.last_active_s -= 1

        current.replace(with_dynamic(unlimited, all_brokers={name: "1"}, this_broker={}))
        assert (first.transport.aborted, second.transport.aborted) == (True, False)
        first.lose()
        third = broker.connect()
        assert not third.is_read()
        of_one = f"listener.name.plaintext.{name}"
        current.replace(with_dynamic(unlimited, all_brokers={of_one: "2"}, this_broker={}))
        assert third.is_read()
        fourth = broker.connect()
        assert not fourth.is_read()
        current.replace(with_dynamic(unlimited, all_brokers={}, this_broker={}))
        assert fourth.is_read()
