"""The client with GSSAPI: tickets of kinit, keys of a keytab, brokers that are somebody else."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, NamedTuple

import pytest

from client.connection import Connection
from client.errors import Failure, Refused, WrongUse
from client.kerberos import Gssapi
from client.security import parse_client_security
from config.jaas import KRB5_LOGIN_MODULE
from protocol.messages.metadata import MetadataRequest, MetadataResponse
from tests.support.kerberos import HOST, REALM, KerberosBroker, Realm, realm_with_broker
from tests.support.secured import USERS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Site(NamedTuple):
    realm: Realm
    broker: KerberosBroker
    keytab: Path
    """Of alice."""
    tickets: Path


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    settings = {
        "connection.failed.authentication.delay.ms": "10",
        "listener.name.sasl_ssl.gssapi.connections.max.reauth.ms": "1500",
    }
    with realm_with_broker(tmp_path_factory.mktemp("kerberos"), settings) as (realm, broker):
        keytab = realm.keytab("alice", "alice", new_keys=False)
        yield Site(realm, broker, keytab, realm.kinit("alice", USERS["alice"]))


def properties(site: Site, protocol: str, *options: str) -> dict[str, str]:
    return {
        "security.protocol": protocol,
        "sasl.kerberos.service.name": "kafka",
        "sasl.jaas.config": f"{KRB5_LOGIN_MODULE} required {' '.join(options)};",
        "ssl.truststore.location": str(site.broker.authority.certificate),
    }


def from_cache(site: Site) -> str:
    return f'useTicketCache=true ticketCache="{site.tickets}"'


def from_keytab(site: Site) -> str:
    return f'useKeyTab=true keyTab="{site.keytab}" principal="alice@{REALM}"'


def connect(site: Site, given: dict[str, str], host: str = HOST) -> Connection:
    security = parse_client_security(given)
    port = site.broker.ports[given["security.protocol"]]
    return Connection(host, port, timeout_s=10, security=security)


def is_served(connection: Connection) -> bool:
    return bool(connection.call(MetadataRequest(topics=[]), MetadataResponse).brokers)


@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
@pytest.mark.parametrize("options", [from_cache, from_keytab])
def test_a_ticket_and_a_key_do(site: Site, options: object, protocol: str) -> None:
    assert callable(options)
    with connect(site, properties(site, protocol, options(site))) as connection:
        assert is_served(connection)


def test_a_key_is_used_again_when_its_ticket_ends_and_not_before(site: Site) -> None:
    site.realm.add("program", password="program")
    keytab = site.realm.keytab("program", "program")
    login = f'useKeyTab=true keyTab="{keytab}" principal="program@{REALM}"'
    log = site.realm.folder / "kdc.log"
    for _ in range(3):
        with connect(site, properties(site, "SASL_PLAINTEXT", login)) as connection:
            assert is_served(connection)
    given = re.findall(rf"AS_REQ.*ISSUE.* program@{REALM} for krbtgt", log.read_text())
    assert len(given) == 1


def test_without_a_login_module_it_is_the_ticket_of_kinit(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KRB5CCNAME", str(site.tickets))
    given = properties(site, "SASL_PLAINTEXT")
    del given["sasl.jaas.config"]
    with connect(site, given) as connection:
        assert is_served(connection)


def test_a_session_is_renewed_before_it_ends(site: Site) -> None:
    with connect(site, properties(site, "SASL_SSL", from_keytab(site))) as connection:
        first = connection._authenticate_at
        assert first is not None
        while connection._authenticate_at == first:
            assert is_served(connection)
        assert is_served(connection)


def test_brokers_before_1_0_answer_the_last_token_with_nothing(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ours does so too where the handshake is of version 0."""
    offers = Connection.offers
    monkeypatch.setattr(
        Connection,
        "offers",
        lambda self, message: (
            message.__name__ != "SaslAuthenticateRequest" and offers(self, message)
        ),
    )
    with connect(site, properties(site, "SASL_PLAINTEXT", from_cache(site))) as connection:
        assert is_served(connection)


def test_what_is_missing_names_the_key_to_set(site: Site, tmp_path: Path) -> None:
    """And nothing is sent to a broker that Kerberos does not know."""
    missing = tmp_path / "tickets"
    for given, host, sentence in (
        (properties(site, "SASL_PLAINTEXT", f'ticketCache="{missing}"'), HOST, r"kinit, or keyTab"),
        (properties(site, "SASL_PLAINTEXT", from_cache(site)), "127.0.0.1",
         r"no ticket for the broker \(sasl.kerberos.service.name\)"),
    ):  # fmt: skip
        with pytest.raises(WrongUse, match=sentence):
            connect(site, given, host)


def test_a_principal_that_the_broker_has_no_name_for_is_refused(site: Site) -> None:
    site.realm.add("nobody/there/at/all")
    keytab = site.realm.keytab("nobody", "nobody/there/at/all")
    login = f'useKeyTab=true keyTab="{keytab}" principal="nobody/there/at/all@{REALM}"'
    with pytest.raises(Failure, match=r"refuses user 'nobody/there/at/all@.* by GSSAPI: .*jaas"):
        connect(site, properties(site, "SASL_PLAINTEXT", login))


def test_a_broker_that_can_not_prove_that_it_is_the_service_is_not_trusted(site: Site) -> None:
    exchange = Gssapi(
        parse_client_security(properties(site, "SASL_PLAINTEXT", from_cache(site))), HOST
    )
    heard = exchange.first()
    for answer in (b"", heard, b"`\x05proof"):
        with pytest.raises(Refused, match="does not prove that it is the service"):
            exchange.next(answer)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"sasl.kerberos.service.name": ""}, "sasl.kerberos.service.name is wanted"),
        ({"sasl.jaas.config": "Krb5LoginModule required;"}, "lacks com.sun.security.auth.module"),
        ({"sasl.jaas.config": f"{KRB5_LOGIN_MODULE} required serviceName=http;"}, "another"),
        ({"sasl.jaas.config": f"{KRB5_LOGIN_MODULE} required useKeyTab=true;"}, "lacks keyTab"),
        (
            {
                "sasl.jaas.config": f"{KRB5_LOGIN_MODULE} required useKeyTab=true principal=a "
                "keyTab=/nowhere;"
            },
            "/nowhere can't be read",
        ),
    ],
)
def test_what_is_wrong_in_a_file_is_said(changes: dict[str, str], sentence: str) -> None:
    given = {"security.protocol": "SASL_SSL", "sasl.kerberos.service.name": "kafka", **changes}
    with pytest.raises(WrongUse, match=sentence):
        parse_client_security(given)


def test_a_keytab_that_everybody_can_read_is_refused(tmp_path: Path) -> None:
    keytab = tmp_path / "alice.keytab"
    keytab.write_bytes(b"\x05\x02")
    keytab.chmod(0o644)
    login = f"{KRB5_LOGIN_MODULE} required useKeyTab=true principal=a keyTab={keytab};"
    with pytest.raises(WrongUse, match="has keys of Kerberos and can be read"):
        parse_client_security(
            {
                "security.protocol": "SASL_SSL",
                "sasl.kerberos.service.name": "kafka",
                "sasl.jaas.config": login,
            }
        )


def test_without_the_package_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gssapi", None)
    security = parse_client_security(
        {"security.protocol": "SASL_SSL", "sasl.kerberos.service.name": "kafka"}
    )
    with pytest.raises(WrongUse, match=r"pip install triglot\[kerberos\]"):
        Gssapi(security, HOST)
