"""Tickets of a KDC, as libkrb5 takes them: expired ones, and keytabs that can't be used."""

from __future__ import annotations

import re
import struct
import sys
import time
from typing import TYPE_CHECKING

import pytest

from broker.security.sasl.mechanism import BadToken
from config.keystores import KeystoreError
from tests.support.kerberos import REALM, SERVICE, GssapiClient, Realm

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from broker.security.sasl.kerberos import Service

CLOCK_SKEW_S = 2
DEADLINE_S = 20.0
NOT_BEFORE_S = 1_700_000_000
"""No ticket here is older, in seconds since 1970."""


@pytest.fixture(scope="module")
def realm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Realm]:
    """This process is a machine of it."""
    folder = tmp_path_factory.mktemp("kerberos")
    with Realm(folder, clock_skew_s=CLOCK_SKEW_S) as realm, pytest.MonkeyPatch.context() as environ:
        for name, value in realm.environ.items():
            environ.setenv(name, value)
        realm.add("alice", password="alice-secret")
        realm.add(SERVICE)
        realm.keytab("kafka", SERVICE)
        yield realm


def service(realm: Realm, principal: str = SERVICE) -> Service:
    from broker.security.sasl.kerberos import Service

    return Service(str(realm.folder / "kafka.keytab"), principal)


def with_later_ends(tickets: Path, lifetime_s: int) -> Path:
    """The cache with the ends of its tickets an hour later, which are in it beside the tickets: the
    client's library would not use them else."""
    data = bytearray(tickets.read_bytes())
    for at in range(len(data) - 12):
        began, starts, ends = struct.unpack_from(">III", data, at)
        if began > NOT_BEFORE_S and starts in (0, began) and ends - began == lifetime_s:
            struct.pack_into(">I", data, at + 8, ends + 3600)
    tickets.write_bytes(data)
    return tickets


def test_a_ticket_that_has_expired_is_refused(realm: Realm) -> None:
    keytab = realm.keytab("alice", "alice", new_keys=False)
    tickets = realm.service_ticket("alice", keytab, server=SERVICE, lifetime_s=1)
    with_later_ends(tickets, 1)
    broker = service(realm)
    deadline = time.monotonic() + DEADLINE_S
    why = ""
    while not why:
        assert time.monotonic() < deadline, "it is accepted after its end"
        context = broker.new_context()
        try:
            context.accept(GssapiClient(tickets).first())
        except BadToken as error:
            why = str(error)
        else:
            assert context.initiator == f"alice@{REALM}"
            time.sleep(0.05)
    assert "Ticket expired" in why


def test_the_realm_of_the_rule_default_is_that_of_krb5_conf(
    realm: Realm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert service(realm).realm == REALM
    config = tmp_path / "krb5.conf"
    config.write_text(re.sub("default_realm.*", "", realm.config.read_text()))
    monkeypatch.setenv("KRB5_CONFIG", str(config))
    assert service(realm).realm == ""


def test_a_keytab_of_another_principal_is_named(realm: Realm) -> None:
    with pytest.raises(KeystoreError, match=r"can't be used as the keytab of kafka/other@TEST"):
        service(realm, f"kafka/other@{REALM}")


@pytest.mark.parametrize(
    ("content", "mode", "reason"),
    [
        (None, 0, "No such file"),
        (b"\x05\x02", 0o644, r"has keys of Kerberos and can be read .*chmod o-rwx"),
        (b"no keytab", 0o600, "can't be used as the keytab"),
        (b"", 0o600, "can't be used as the keytab"),
    ],
)
def test_what_is_no_keytab_is_refused(
    realm: Realm, tmp_path: Path, content: bytes | None, mode: int, reason: str
) -> None:
    from broker.security.sasl.kerberos import Service

    keytab = tmp_path / "keytab"
    if content is not None:
        keytab.write_bytes(content)
        keytab.chmod(mode)
    with pytest.raises(KeystoreError, match=reason):
        Service(str(keytab), SERVICE)


def test_without_the_package_it_is_said_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from broker.security.sasl.kerberos import Service

    monkeypatch.setitem(sys.modules, "gssapi", None)
    with pytest.raises(KeystoreError, match=r"pip install triglot\[kerberos\].*libkrb5-dev"):
        Service(str(tmp_path / "keytab"), SERVICE)
