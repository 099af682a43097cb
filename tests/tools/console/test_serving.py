"""The process of the console: started with the broker, started again, ended with it."""

from __future__ import annotations

import os
import re
import signal
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from client.cluster import Cluster, TopicPartition
from protocol.messages.create_partitions import CreatePartitionsRequest
from tests.support.broker_process import CHECKOUT, BrokerProcess, without_settings
from tests.support.caller import Caller
from tests.support.certificates import Authority
from tests.support.console import ConsoleClient
from tests.support.secured import JAAS
from tests.support.server_process import free_port

if TYPE_CHECKING:
    from collections.abc import Callable

ON_ANY_PORT = ("--listen", "127.0.0.1:0")
WAIT_S = 60.0


def wait_until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def consoles_of(broker: BrokerProcess) -> list[int]:
    """The processes that the broker has started."""
    children = Path(f"/proc/{broker.pid}/task/{broker.pid}/children")
    return [int(pid) for pid in children.read_text().split()]


def has_ended(pid: int) -> bool:
    """Whether it is gone, or only its status is left."""
    try:
        return re.search(r"^State:\s+Z", Path(f"/proc/{pid}/status").read_text(), re.M) is not None
    except OSError:
        return True


@pytest.mark.linux
def test_a_console_that_ends_is_started_again_and_nobody_is_turned_away(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, arguments=("--console", "127.0.0.1:0")) as broker:
        console = ConsoleClient(broker)
        assert console.get("/topics").status == 200
        (first,) = consoles_of(broker)
        os.kill(first, signal.SIGKILL)
        wait_until(lambda: has_ended(first), "it was not killed")
        # It waits in the backlog of the port until the next process takes it.
        assert console.get("/topics").status == 200
        (second,) = consoles_of(broker)
        assert second != first
        assert "the console has ended with -9" in broker.output()


@pytest.mark.linux
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_console_ends_with_its_broker(tmp_path: Path, how: signal.Signals) -> None:
    broker = BrokerProcess(tmp_path, arguments=("--console", "127.0.0.1:0"))
    broker.start()
    ConsoleClient(broker).get("/topics")
    (console,) = consoles_of(broker)
    broker.kill() if how == signal.SIGKILL else broker.stop()
    wait_until(lambda: has_ended(console), "the console outlives its broker")


@pytest.mark.linux
def test_a_broker_without_a_console_starts_no_process(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        assert consoles_of(broker) == []


def refused(tmp_path: Path, *arguments: str, **environ: str) -> str:
    """The line of a start that is refused."""
    run = subprocess.run(
        [sys.executable, "-m", "tools", "serve", "--data", str(tmp_path / "data"), *arguments],
        cwd=CHECKOUT,
        env={**without_settings(), **environ},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode in (1, 2), run.stdout
    return run.stderr.splitlines()[-1]


def test_a_port_that_is_taken_stops_the_start_in_a_line(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "other") as other:
        line = refused(tmp_path, *ON_ANY_PORT, "--console", other.bootstrap)
    assert f"can't listen on CONSOLE://{other.bootstrap}" in line
    assert "--console" in line


def test_an_address_without_a_port_is_refused(tmp_path: Path) -> None:
    assert "--console wants HOST:PORT" in refused(tmp_path, "--console", "127.0.0.1")


def test_packages_that_are_missing_are_told_with_what_installs_them(tmp_path: Path) -> None:
    """A package that can't be found, as where the extra was not installed."""
    (tmp_path / "sitecustomize.py").write_text(
        "import importlib.util as util\n"
        "found = util.find_spec\n"
        "util.find_spec = lambda name, *rest: None if name == 'uvicorn' else found(name, *rest)\n"
    )
    line = refused(tmp_path, *ON_ANY_PORT, "--console", "127.0.0.1:0", PYTHONPATH=str(tmp_path))
    assert line == ("triglot: the console needs pip install triglot[console] (there is no uvicorn)")


def test_a_listener_that_asks_for_certificates_alone_has_no_console(tmp_path: Path) -> None:
    certificate = Authority(tmp_path).issue("broker")
    line = refused(
        tmp_path,
        *("--console", "127.0.0.1:0", "--set", "listeners=SSL://127.0.0.1:0"),
        *("--set", f"ssl.keystore.location={certificate.pem}"),
        *("--set", "inter.broker.listener.name=SSL"),
    )
    assert "console.port needs a listener that is PLAINTEXT, or takes PLAIN or SCRAM" in line


def test_browsers_speak_tls_where_it_is_wanted(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    settings = {
        "console.security.protocol": "SSL",
        "ssl.keystore.location": str(authority.issue("localhost").pem),
    }
    with BrokerProcess(
        tmp_path / "data", settings=settings, arguments=("--console", "127.0.0.1:0")
    ) as broker:
        found = re.search(r"console at https://127\.0\.0\.1:(\d+)/", broker.output())
        assert found is not None
        context = ssl.create_default_context(cafile=str(authority.certificate))
        url = f"https://localhost:{found[1]}/topics"
        with urllib.request.urlopen(url, timeout=60, context=context) as page:
            assert page.status == 200
            assert "Secure" in page.headers["Set-Cookie"]
        with pytest.raises(OSError, match=r"reset|closed|Remote end|aborted"):
            urllib.request.urlopen(f"http://localhost:{found[1]}/topics", timeout=60)
        with pytest.raises(urllib.error.URLError, match="CERTIFICATE_VERIFY_FAILED"):
            urllib.request.urlopen(url, timeout=60, context=ssl.create_default_context())
        assert "PRIVATE KEY" not in broker.output()


LOGINS = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
    "inter.broker.listener.name": "SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": f"{JAAS};",
}


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (LOGINS, "people log in at the console, and 0.0.0.0 is no loopback address"),
        ({"console.security.protocol": "SSL"}, "ssl.keystore.location: is missing"),
        ({"console.security.protocol": "SASL_SSL"}, "console.security.protocol"),
    ],
)
def test_a_console_that_would_give_passwords_away_stops_the_start(
    tmp_path: Path, settings: dict[str, str], said: str
) -> None:
    given = [word for one in settings.items() for word in ("--set", "=".join(one))]
    assert said in refused(tmp_path, "--console", "0.0.0.0:0", *given)


def test_a_broker_that_advertises_another_address_is_asked_where_it_is(tmp_path: Path) -> None:
    """As in a container, whose broker tells clients the address that is open outside."""
    nowhere = free_port()
    settings = {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{nowhere}"}
    arguments = ("--console", "127.0.0.1:0", "--console-writable")
    with BrokerProcess(tmp_path, settings=settings, arguments=arguments) as broker:
        with Cluster(broker.bootstrap, reached_at={1: broker.bootstrap}) as client:
            client.create_topic("inside", 1)
            client.commit_offsets("readers", {TopicPartition("inside", 0): 0})
        console = ConsoleClient(broker)
        written = console.send("/topics/inside/produce", "/topics/inside/produce", value="here")
        assert "here" in console.get(written.fields["location"]).text
        for path in ("/topics", "/topics/inside", "/group?id=readers", "/settings"):
            assert console.get(path).status == 200, path


def test_partitions_that_were_added_are_shown(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, arguments=("--console", "127.0.0.1:0")) as broker:
        console = ConsoleClient(broker)
        with Cluster(broker.bootstrap) as client, Caller(broker.host, broker.port) as caller:
            client.create_topic("growing", 1)
            assert console.get("/topics/growing/records?partition=1").status == 400
            request = CreatePartitionsRequest(
                topics=[CreatePartitionsRequest.Topic(name="growing", count=2, assignments=None)],
                timeout_ms=10_000,
                validate_only=False,
            )
            assert not caller.call(request).results[0].error_code
        assert console.get("/topics/growing/records?partition=1").status == 200
