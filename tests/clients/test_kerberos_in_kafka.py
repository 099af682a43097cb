"""The same tokens to us and to Apache Kafka: what is answered, and where the connection ends."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from protocol.messages.metadata import MetadataRequest
from tests.clients.available import MARKS
from tests.support.kafka_process import KafkaProcess
from tests.support.kafka_release import KAFKA_3_9, KAFKA_4
from tests.support.kerberos import (
    SERVICE,
    GssapiClient,
    KerberosBroker,
    Realm,
    kerberos_settings,
    realm_with_broker,
)
from tests.support.secured import USERS, authenticate, send_token, shake
from tests.support.server_process import free_port
from tests.support.wire_client import ConnectionClosed, WireClient

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.support.kafka_release import Release

    Story = Callable[["Site", WireClient], list[object]]
    """What is seen by one who does so."""

pytestmark = [pytest.mark.clients, pytest.mark.long, pytest.mark.timeout(600), *MARKS["java"]]

SASL_AUTHENTICATION_FAILED = 58
CHOICE = b"\x01\0\0\0"
SETTINGS = {
    "listener.name.sasl_plaintext.gssapi.connections.max.reauth.ms": "60000",
    "connection.failed.authentication.delay.ms": "10",
    "sasl.kerberos.principal.to.local.rules": (
        "RULE:[1:$1@$0](.*@TEST.EXAMPLE)s/@.*//,RULE:[2:$1-$2](web-.*)/U"
    ),
}


class Site(NamedTuple):
    realm: Realm
    ours: KerberosBroker
    folder: Path

    def client(self, user: str = "alice", service: str = "kafka@localhost") -> GssapiClient:
        return GssapiClient(self.realm.kinit(user, USERS.get(user, user)), service)


class Kafka(NamedTuple):
    port: int
    release: Release


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("kerberos")
    with realm_with_broker(folder, SETTINGS) as (realm, ours):
        for principal in ("mail/localhost", "web/localhost", "a/b/c"):
            realm.add(principal, password=principal)
        realm.add("http/localhost")
        realm.keytab("kafka", "http/localhost")
        yield Site(realm, ours, folder)


@pytest.fixture(scope="module", params=[KAFKA_3_9, KAFKA_4], ids=["3.9", "4"])
def kafka(site: Site, request: pytest.FixtureRequest) -> Iterator[Kafka]:
    """Apache Kafka with the same keytab."""
    release: Release = request.param
    port = free_port()
    settings = {
        **kerberos_settings(site.ours.keytab, SERVICE),
        **SETTINGS,
        "sasl.enabled.mechanisms": "GSSAPI",
        "listener.security.protocol.map": (
            "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT"
        ),
    }
    del settings["listener.name.sasl_ssl.gssapi.sasl.jaas.config"]
    process = KafkaProcess(
        site.folder / f"kafka-{release.name}", settings=settings, release=release
    )
    process.port, process._controller_port = free_port(), free_port()
    plain, controller = process.bootstrap, f"127.0.0.1:{process._controller_port}"
    process.settings["listeners"] = (
        f"PLAINTEXT://{plain},CONTROLLER://{controller},SASL_PLAINTEXT://127.0.0.1:{port}"
    )
    process.settings["advertised.listeners"] = (
        f"PLAINTEXT://{plain},SASL_PLAINTEXT://localhost:{port}"
    )
    with pytest.MonkeyPatch.context() as environ:
        environ.setenv("JAVA_TOOL_OPTIONS", f"-Djava.security.krb5.conf={site.realm.config}")
        process.start()
    yield Kafka(port, release)
    process.stop()


def told(answer: Any) -> tuple[object, ...]:
    return (answer.error_code, answer.error_message or "", answer.session_lifetime_ms)


def is_served(client: WireClient) -> bool:
    try:
        return bool(client.call(MetadataRequest(topics=[]), 9).brokers)
    except ConnectionClosed:
        return False


def log_in(
    client: WireClient, who: GssapiClient, choice: bytes = CHOICE, *, waiting: bytes = b""
) -> list[object]:
    shaken = shake(client, "GSSAPI")
    proof = authenticate(client, who.first())
    seen: list[object] = [shaken.error_code, told(proof)]
    if proof.error_code:
        return seen
    who.take(proof.auth_bytes)
    offer = authenticate(client, waiting)
    if offer.error_code:
        return [*seen, told(offer)]
    last = authenticate(client, who.wrapped(choice))
    return [*seen, told(offer), who.offered(offer.auth_bytes), told(last), bytes(last.auth_bytes)]


def log_in_bare(client: WireClient, who: GssapiClient) -> list[object]:
    """The request after the last token is answered next: nothing comes between."""
    who.take(send_token(client, who.first()))
    offer = who.offered(send_token(client, b""))
    last = who.wrapped(CHOICE)
    client.send_raw(len(last).to_bytes(4, "big") + last)
    return [offer, is_served(client)]


def in_order(site: Site, client: WireClient) -> list[object]:
    return [*log_in(client, site.client()), is_served(client)]


def after_a_handshake_of_0(site: Site, client: WireClient) -> list[object]:
    return [shake(client, "GSSAPI", version=0).error_code, *log_in_bare(client, site.client())]


def without_a_handshake(site: Site, client: WireClient) -> list[object]:
    return log_in_bare(client, site.client())


def as_somebody_else(site: Site, client: WireClient) -> list[object]:
    return [*log_in(client, site.client(), CHOICE + b"bob"), *log_in(client, site.client())]


def again_as_another(site: Site, client: WireClient) -> list[object]:
    return [*log_in(client, site.client()), *log_in(client, site.client("bob"))]


def again_after_a_rule(site: Site, client: WireClient) -> list[object]:
    """Of which the name is told."""
    return [*log_in(client, site.client("web/localhost")), *log_in(client, site.client())]


def with_a_layer(site: Site, client: WireClient) -> list[object]:
    return log_in(client, site.client(), b"\x02\0\x10\0")


def with_a_layer_of_privacy(site: Site, client: WireClient) -> list[object]:
    return log_in(client, site.client(), b"\x04\0\x10\0")


def with_no_choice(site: Site, client: WireClient) -> list[object]:
    return log_in(client, site.client(), b"\0\0\0\0")


def with_a_token_where_none_is_wanted(site: Site, client: WireClient) -> list[object]:
    return log_in(client, site.client(), waiting=b"word")


def with_noise(site: Site, client: WireClient) -> list[object]:
    return [shake(client, "GSSAPI").error_code, told(authenticate(client, os.urandom(700)))]


def with_a_bit_flipped(site: Site, client: WireClient) -> list[object]:
    token = site.client().first()
    at = len(token) // 2
    token = token[:at] + bytes((token[at] ^ 1,)) + token[at + 1 :]
    return [shake(client, "GSSAPI").error_code, told(authenticate(client, token))]


def with_a_ticket_for_another(site: Site, client: WireClient) -> list[object]:
    return log_in(client, site.client(service="http@localhost"))


def twice(site: Site, client: WireClient) -> list[object]:
    """The same ticket and authenticator, on two connections."""
    token = site.client().first()
    shake(client, "GSSAPI")
    seen = [told(authenticate(client, token))]
    with WireClient(*client.socket.getpeername()) as other:
        shake(other, "GSSAPI")
        return [*seen, told(authenticate(other, token)), other.closed_by_server()]


def without_a_rule(site: Site, client: WireClient) -> list[object]:
    return [*log_in(client, site.client("mail/localhost")), is_served(client)]


def with_three_parts(site: Site, client: WireClient) -> list[object]:
    return [*log_in(client, site.client("a/b/c")), is_served(client)]


STORIES = [
    in_order, after_a_handshake_of_0, as_somebody_else, again_as_another,
    again_after_a_rule, with_a_layer, with_a_layer_of_privacy, with_no_choice,
    with_a_token_where_none_is_wanted, with_noise, with_a_bit_flipped, with_a_ticket_for_another,
    twice,
]  # fmt: skip


def seen_at_ours(site: Site, story: Story) -> Any:
    return seen_at(site, site.ours.ports["SASL_PLAINTEXT"], story)


def seen_at(site: Site, port: int, story: Story) -> Any:
    with WireClient("127.0.0.1", port) as client:
        try:
            return story(site, client)
        except ConnectionClosed:
            return "closed"


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_kafka_answers_as_we_do(site: Site, kafka: Kafka, story: Story) -> None:
    assert seen_at(site, kafka.port, story) == seen_at_ours(site, story)


@pytest.mark.parametrize("story", [without_a_rule, with_three_parts])
def test_kafka_serves_none_without_a_name_and_tells_it_later_than_we_do(
    site: Site, kafka: Kafka, story: Story
) -> None:
    ours, theirs = seen_at_ours(site, story), seen_at(site, kafka.port, story)
    assert ours[4][0] == SASL_AUTHENTICATION_FAILED
    assert theirs[4] == (0, "", 60_000)
    assert ours[-1] is theirs[-1] is False


def test_kafka_before_4_takes_a_token_without_a_handshake_and_we_do(
    site: Site, kafka: Kafka
) -> None:
    ours, theirs = (
        seen_at_ours(site, without_a_handshake),
        seen_at(site, kafka.port, without_a_handshake),
    )
    assert ours == [b"\x01\x01\0\0", True]
    assert theirs == (ours if kafka.release is KAFKA_3_9 else "closed")
