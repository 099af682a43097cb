"""The proxies, `triglot tap` and `triglot faults`, between clients and brokers with TLS."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest

from config.jaas import PLAIN_LOGIN_MODULE
from testing.control import Control
from testing.faults import Faults
from tests.support.caller import Caller
from tests.support.certificates import Authority
from tests.support.proxy_process import ProxyProcess
from tests.support.secured import SecuredBroker
from tests.support.tap_process import TapProcess
from tests.support.typed_bytes import typed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ALICE = (
    "sasl.mechanism=PLAIN\n"
    f'sasl.jaas.config={PLAIN_LOGIN_MODULE} required username="alice" password="alice-secret";\n'
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("secured")


@pytest.fixture(scope="module")
def broker(folder: Path) -> Iterator[SecuredBroker]:
    with SecuredBroker(folder) as running:
        with Caller(running.host, running.ports["PLAINTEXT"]) as caller:
            caller.create_topic("orders")
        yield running


@pytest.fixture(scope="module")
def to_broker(folder: Path, broker: SecuredBroker) -> str:
    """A file with whom the proxy trusts; it knows no user."""
    return written(folder / "proxy.properties", "SSL", broker.authority)


def written(file: Path, protocol: str, authority: Authority | None, login: str = "") -> str:
    trust = f"ssl.truststore.location={authority.certificate}\n" if authority else ""
    file.write_text(f"security.protocol={protocol}\n{trust}{login}")
    file.chmod(0o600)
    return str(file)


def test_a_client_without_tls_reaches_a_broker_with_it(
    broker: SecuredBroker, to_broker: str, tmp_path: Path
) -> None:
    (tmp_path / "lines").write_text("one\n")
    login = written(tmp_path / "client.properties", "SASL_PLAINTEXT", None, ALICE)
    saved = tmp_path / "talk"
    words = ("--command-config", to_broker, "--save", str(saved))
    with TapProcess(broker.bootstrap_of("SASL_SSL"), arguments=words) as tap:
        there = ("--bootstrap", tap.bootstrap, "--command-config", login)
        assert typed("produce", "orders", str(tmp_path / "lines"), *there).code == 0
        assert typed("consume", "orders", "--until-end", *there).out == b"one\n"
    told = typed("tap", "show", str(saved), "--json").answers
    assert {"SaslAuthenticate", "Produce", "Fetch"} <= {one.get("api") for one in told}
    assert b"alice-secret" not in saved.read_bytes()


def test_clients_speak_tls_with_a_certificate_of_the_proxy(
    broker: SecuredBroker, to_broker: str, tmp_path: Path
) -> None:
    certificate = broker.authority.issue("proxy", file="proxy")
    words = ("--command-config", to_broker, "--certificate", str(certificate.pem))
    login = written(tmp_path / "client.properties", "SASL_SSL", broker.authority, ALICE)
    proxy = ProxyProcess(
        broker.bootstrap_of("SASL_SSL"), arguments=(*words, "--testing", "127.0.0.1:0")
    )
    with proxy:
        run = proxy.run
        assert run is not None
        fault = Faults(Control.at(proxy.control)).drop_answer("Metadata")
        there = ("--bootstrap", proxy.bootstrap, "--command-config", login)
        assert typed("topics", "list", *there).code == 1
        assert fault.fired == 1
        assert b"orders" in typed("topics", "list", *there).out
        with socket.create_connection((proxy.host, proxy.port)) as plain:
            plain.sendall(b"\0\0\0\x0a\0\x12\0\0\0\0\0\1\xff\xff")
            plain.recv(1000)
    assert "it speaks plaintext; this listener speaks TLS" in run.output()


def test_a_broker_that_is_not_trusted_is_one_line(broker: SecuredBroker, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    distrusting = written(tmp_path / "proxy.properties", "SSL", Authority(tmp_path / "other"))
    tap = TapProcess(broker.bootstrap_of("SSL"), arguments=("--command-config", distrusting))
    with tap:
        run = tap.run
        assert run is not None
        assert typed("topics", "list", "--bootstrap", tap.bootstrap).code == 1
    said = run.output()
    assert "is not accepted" in said
    assert "ssl.truststore.location names whom to trust" in said
    assert "Traceback" not in said


@pytest.mark.parametrize("command", [("tap", "listen"), ("faults", "--testing", "127.0.0.1:0")])
def test_a_certificate_that_cannot_be_used_is_refused(
    command: tuple[str, ...], tmp_path: Path
) -> None:
    file = tmp_path / "server.pem"
    file.write_text("nothing")
    words = (*command, "--in-front-of", "127.0.0.1:1", "--certificate", str(file))
    ran = typed(*words)
    assert ran.code == 2
    assert ran.err.startswith(f"triglot: --certificate {file}")
    assert ran.err.count("\n") == 1
