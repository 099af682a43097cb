"""Listeners: how they are written, and which are refused."""

from __future__ import annotations

import pytest

from config import ConfigError, Listener, load
from config.listeners import listener_list


@pytest.mark.parametrize(
    ("text", "listener"),
    [
        ("PLAINTEXT://127.0.0.1:9092", Listener("PLAINTEXT", "127.0.0.1", 9092)),
        ("PLAINTEXT://:9092", Listener("PLAINTEXT", "", 9092)),
        ("plaintext://localhost:0", Listener("PLAINTEXT", "localhost", 0)),
        ("IN_SIDE://[::1]:9093", Listener("IN_SIDE", "::1", 9093)),
    ],
)
def test_a_listener_is_a_name_a_host_and_a_port(text: str, listener: Listener) -> None:
    assert listener_list.parse(text) == (listener,)


def test_a_listener_is_written_as_it_is_read() -> None:
    text = "PLAINTEXT://127.0.0.1:9092,IN://[::1]:9093,OUT://:0"
    assert listener_list.format(listener_list.parse(text)) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "localhost:9092",
        "PLAINTEXT://",
        "PLAINTEXT://localhost",
        "PLAINTEXT://localhost:port",
        "PLAINTEXT://localhost:65536",
        "PLAINTEXT://localhost:-1",
        "PLAINTEXT://::1:9092",
        "://localhost:9092",
        "PLAIN TEXT://localhost:9092",
        "PLAINTEXT://a:1,",
        "PLAINTEXT://a:1,plaintext://b:2",
    ],
)
def test_a_text_that_is_no_list_of_listeners_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="listeners = "):
        load(overrides={"listeners": text})


def test_a_name_of_ones_own_needs_a_protocol() -> None:
    with pytest.raises(ConfigError, match="does not say which protocol INSIDE speaks"):
        load(overrides={"listeners": "INSIDE://:9092"})
    settings = load(
        overrides={
            "listeners": "INSIDE://:9092",
            "listener.security.protocol.map": "inside:plaintext, OUTSIDE:SSL",
        }
    )
    assert settings.served_listeners == (Listener("INSIDE", "", 9092),)


@pytest.mark.parametrize("text", ["PLAINTEXT", "PLAINTEXT:HTTP", "A:SSL,A:SSL", ":SSL"])
def test_a_protocol_map_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"listener\.security\.protocol\.map"):
        load(overrides={"listener.security.protocol.map": text})


COMBINED = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.voters": "1@localhost:9093",
    "listeners": "CONTROLLER://:9093,PLAINTEXT://:9092",
    "controller.listener.names": "CONTROLLER",
}


def names(listeners: tuple[Listener, ...]) -> list[str]:
    return [listener.name for listener in listeners]


def test_the_listener_of_the_controller_is_opened_behind_those_of_clients() -> None:
    settings = load(overrides=COMBINED)

    assert names(settings.client_listeners) == ["PLAINTEXT"]
    assert names(settings.controller_listeners) == ["CONTROLLER"]
    assert names(settings.served_listeners) == ["PLAINTEXT", "CONTROLLER"]


def test_a_controllers_name_may_be_written_in_any_case_and_need_not_be_a_listener() -> None:
    settings = load(overrides={**COMBINED, "controller.listener.names": "controller,ELSEWHERE"})

    assert names(settings.controller_listeners) == ["CONTROLLER"]
    assert load(overrides={"controller.listener.names": "ELSEWHERE"}).controller_listeners == ()


def test_only_without_a_protocol_map_a_controllers_listener_is_plaintext_by_itself() -> None:
    without = {**COMBINED, "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT"}
    with pytest.raises(ConfigError, match="does not say which protocol CONTROLLER speaks"):
        load(overrides=without)
    with_it = {**COMBINED, "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:SSL"}
    with pytest.raises(
        ConfigError, match=r"listener.name.controller.ssl.keystore.location: is missing"
    ):
        load(overrides=with_it)
    client = {**COMBINED, "listeners": "CONTROLLER://:9093,INSIDE://:9092"}
    with pytest.raises(ConfigError, match="does not say which protocol INSIDE speaks"):
        load(overrides=client)


def test_clients_and_the_controller_do_not_share_a_port() -> None:
    with pytest.raises(ConfigError, match="port 9092 is used twice"):
        load(overrides={**COMBINED, "listeners": "PLAINTEXT://:9092,CONTROLLER://:9092"})


def test_a_node_with_nothing_but_a_controllers_listener_is_refused() -> None:
    with pytest.raises(ConfigError, match="none is left for clients"):
        load(
            overrides={
                "listeners": "CONTROLLER://:9093",
                "controller.listener.names": "CONTROLLER",
            }
        )


TWO = {"listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT"}


@pytest.mark.parametrize("listeners", ["A://:9092,B://:9092", "A://h:9092,B://h:9092"])
def test_two_listeners_on_one_port_are_refused(listeners: str) -> None:
    with pytest.raises(ConfigError, match="port 9092 is used twice"):
        load(overrides={**TWO, "listeners": listeners})


@pytest.mark.parametrize("listeners", ["A://127.0.0.1:9092,B://[::1]:9092", "A://:0,B://:0"])
def test_two_addresses_may_share_a_port(listeners: str) -> None:
    assert len(load(overrides={**TWO, "listeners": listeners}).served_listeners) == 2


def test_clients_are_told_what_is_advertised_and_else_what_they_dialled() -> None:
    settings = load(
        overrides={
            **TWO,
            "listeners": "A://:9092,B://:9093",
            "advertised.listeners": "A://broker.example:19092",
        }
    )
    assert settings.advertised_listener("A") == Listener("A", "broker.example", 19092)
    assert settings.advertised_listener("B") is None
    assert load().advertised_listener("PLAINTEXT") is None


@pytest.mark.parametrize(
    ("advertised", "reason"),
    [
        ("PLAINTEXT://0.0.0.0:9092", "no client can dial"),
        ("PLAINTEXT://:9092", "no client can dial"),
        ("OTHER://h:9092", "there is no listener named OTHER"),
    ],
)
def test_an_address_nobody_can_dial_is_not_advertised(advertised: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        load(overrides={"advertised.listeners": advertised})


def test_limits_for_single_addresses_are_pairs_of_address_and_count() -> None:
    settings = load(overrides={"max.connections.per.ip.overrides": "127.0.0.1:200, ::1:3"})
    assert settings.max_connections_per_ip_overrides == (("127.0.0.1", 200), ("::1", 3))
    with pytest.raises(ConfigError, match=r"max\.connections\.per\.ip\.overrides"):
        load(overrides={"max.connections.per.ip.overrides": "127.0.0.1:many"})
