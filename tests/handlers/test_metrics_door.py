"""Who may read the metrics: credentials and TLS of the port, and what is said of an open one."""

from __future__ import annotations

import ssl
import time
import urllib.error
import urllib.request
from base64 import b64encode
from typing import TYPE_CHECKING

import pytest

from broker.metrics.listener import Credentials
from tests.support.broker_process import BrokerProcess
from tests.support.certificates import Authority
from tests.support.server_process import ServerFailed, free_port

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tests.support.certificates import Issued

PASSWORD = "kept-to-ourselves"
TOKEN = "a-token-of-the-scraper"
RIGHT = b"Basic " + b64encode(b"prometheus:" + PASSWORD.encode())


def head(*fields: bytes) -> bytes:
    return b"\r\n".join([b"GET /metrics HTTP/1.1", b"Host: x", *fields])


@pytest.mark.parametrize(
    "fields",
    [
        (b"Authorization: " + RIGHT,),
        (b"authorization:   " + RIGHT + b" ",),
        (b"X-Other: 1", b"Authorization: Bearer " + TOKEN.encode()),
        (b"Authorization: bearer " + TOKEN.encode(),),
    ],
)
def test_either_of_the_credentials_is_enough(fields: tuple[bytes, ...]) -> None:
    assert Credentials(f"prometheus:{PASSWORD}", TOKEN).admit(head(*fields))


@pytest.mark.parametrize(
    "fields",
    [
        (),
        (b"Authorization:",),
        (b"Authorization: Basic",),
        (b"Authorization: Basic " + TOKEN.encode(),),
        (b"Authorization: Bearer " + RIGHT.removeprefix(b"Basic "),),
        (b"Authorization: " + RIGHT[:-1],),
        (b"Authorization: " + RIGHT + b"=",),
        (b"Authorization: Bearer \xff\x00",),
        (b"Authorization: Basic x", b"Authorization: " + RIGHT),
        (b"X-Authorization: " + RIGHT,),
    ],
)
def test_whoever_has_none_or_wrong_ones_is_refused(fields: tuple[bytes, ...]) -> None:
    assert not Credentials(f"prometheus:{PASSWORD}", TOKEN).admit(head(*fields))


def printed_by(broker: BrokerProcess) -> str:
    """All that it has printed when it has stopped."""
    run = broker.run
    assert run is not None
    broker.stop()
    return run.output()


def answer(
    url: str,
    authority: Authority | None = None,
    fields: Mapping[str, str] | None = None,
    certificate: Issued | None = None,
) -> tuple[int, str, str]:
    """Status, WWW-Authenticate and text of one request."""
    context = None
    if authority is not None:
        context = ssl.create_default_context(cafile=str(authority.certificate))
        if certificate is not None:
            context.load_cert_chain(certificate.pem)
    request = urllib.request.Request(url, headers=dict(fields or {}))
    try:
        with urllib.request.urlopen(request, timeout=5, context=context) as response:
            return response.status, "", response.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            wanted = error.headers.get_all("WWW-Authenticate") or []
            return error.code, ", ".join(wanted), error.read().decode()


def test_with_tls_and_credentials_only_they_open_the_page_and_nobody_prints_them(
    tmp_path: Path,
) -> None:
    authority = Authority(tmp_path)
    certificate = authority.issue("localhost")
    port = free_port()
    settings = {
        "metrics.port": str(port),
        "metrics.host": "0.0.0.0",
        "metrics.security.protocol": "SSL",
        "metrics.basic.credentials": f"prometheus:{PASSWORD}",
        "metrics.bearer.token": TOKEN,
        "ssl.keystore.location": str(certificate.pem),
    }
    with BrokerProcess(tmp_path / "data", settings=settings) as broker:
        url = f"https://localhost:{port}/metrics"
        refused = answer(url, authority)
        basic = answer(url, authority, {"Authorization": RIGHT.decode()})
        bearer = answer(url, authority, {"Authorization": f"Bearer {TOKEN}"})
        with pytest.raises(OSError, match=r"reset|closed|Remote end|aborted"):
            answer(f"http://localhost:{port}/metrics")
        log = printed_by(broker)

    assert refused[:2] == (401, 'Basic realm="triglot", Bearer realm="triglot"')
    assert "triglot_" not in refused[2]
    assert basic[0] == bearer[0] == 200
    assert "triglot_connections" in basic[2]
    assert f"https://0.0.0.0:{port}/metrics" in log
    assert "may read the metrics" not in log
    for secret in (PASSWORD, TOKEN):
        assert secret not in log
        assert secret not in basic[2]


def test_a_certificate_of_the_scraper_can_be_asked_for(tmp_path: Path) -> None:
    authority, port = Authority(tmp_path), free_port()
    settings = {
        "metrics.port": str(port),
        "metrics.host": "0.0.0.0",
        "metrics.security.protocol": "SSL",
        "ssl.client.auth": "required",
        "ssl.keystore.location": str(authority.issue("localhost").pem),
        "ssl.truststore.location": str(authority.certificate),
        "ssl.truststore.type": "PEM",
    }
    with BrokerProcess(tmp_path / "data", settings=settings) as broker:
        url = f"https://localhost:{port}/metrics"
        assert answer(url, authority, certificate=authority.issue("prometheus"))[0] == 200
        stranger = Authority(tmp_path, "another").issue("stranger")
        for certificate in (None, stranger):
            with pytest.raises(OSError, match=r"(?i)ssl|reset|closed|aborted"):
                answer(url, authority, certificate=certificate)
        log = printed_by(broker)

    assert "may read the metrics" not in log


def test_a_renewed_certificate_is_used_without_a_restart(tmp_path: Path) -> None:
    old, new = Authority(tmp_path, "old"), Authority(tmp_path, "new")
    keystore, port = tmp_path / "server.pem", free_port()
    keystore.write_bytes(old.issue("localhost", file="first").pem.read_bytes())
    keystore.chmod(0o600)
    settings = {
        "metrics.port": str(port),
        "metrics.security.protocol": "SSL",
        "ssl.keystore.location": str(keystore),
    }
    with BrokerProcess(tmp_path / "data", settings=settings) as broker:
        url = f"https://localhost:{port}/metrics"
        assert answer(url, old)[0] == 200
        renewed = tmp_path / "renewed.pem"
        renewed.write_bytes(new.issue("localhost", file="second").pem.read_bytes())
        renewed.chmod(0o600)
        renewed.replace(keystore)
        deadline_s = time.monotonic() + 30
        while "certificates were renewed" not in broker.output():
            assert time.monotonic() < deadline_s
            time.sleep(0.05)
        assert answer(url, new)[0] == 200
        with pytest.raises(urllib.error.URLError, match="CERTIFICATE_VERIFY_FAILED"):
            answer(url, old)


def test_a_port_that_other_machines_reach_without_credentials_is_named(tmp_path: Path) -> None:
    port = free_port()
    settings = {"metrics.port": str(port), "metrics.host": "0.0.0.0"}
    with BrokerProcess(tmp_path / "data", settings=settings) as broker:
        log = printed_by(broker)

    assert log.count("whoever reaches this port may read the metrics") == 1


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"metrics.security.protocol": "SSL"}, r"ssl\.keystore\.location: is missing"),
        ({"metrics.security.protocol": "SASL_SSL"}, r"metrics\.security\.protocol"),
        ({"metrics.basic.credentials": "no-colon"}, r"metrics\.basic\.credentials.*user:password"),
    ],
)
def test_a_door_that_can_t_be_made_stops_the_start(
    settings: dict[str, str], reason: str, tmp_path: Path
) -> None:
    broker = BrokerProcess(
        tmp_path / "data", settings={"metrics.port": str(free_port()), **settings}
    )
    with pytest.raises(ServerFailed, match=rf"(?s){reason}") as failed, broker:
        pass
    assert "no-colon" not in str(failed.value)
