"""The commands of docs/operations.md make a service of systemd, in a Debian of its own."""

from __future__ import annotations

import re
import shutil
import time
from typing import TYPE_CHECKING

import pytest

from tests.clients.available import end_of_test
from tests.containers.engine import PYTHON
from tests.style.sources import CHECKOUT
from tests.support.fetched import NotAvailable
from tests.support.installed import copied_sources

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.containers.engine import Engine

pytestmark = [pytest.mark.long, pytest.mark.slow, pytest.mark.timeout(1500)]

WAIT_S = 60.0


def commands_of_the_page() -> list[str]:
    """The first block of commands under `Installing it`, for root."""
    page = (CHECKOUT / "docs/operations.md").read_text(encoding="utf-8")
    section = page[page.index("## Installing it") :]
    block = section.split("```")[1].strip()
    return [line.partition("  #")[0].removeprefix("sudo ") for line in block.splitlines()]


class Service:
    """The unit `triglot` in a container whose first process is systemd."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def run(self, command: str, *, checked: bool = True) -> str:
        ended = self._engine.run("podman", "exec", "service", "sh", "-c", command, checked=checked)
        return ended.stdout

    def show(self) -> dict[str, str]:
        """The properties of the unit that the tests look at."""
        names = ("ActiveState", "NRestarts", "StatusText", "ExecMainStatus", "MainPID")
        wanted = " ".join(f"-p {name}" for name in names)
        lines = self.run(f"systemctl show triglot {wanted}").splitlines()
        return dict(line.split("=", 1) for line in lines)

    def wait_for(self, **properties: str) -> None:
        deadline = time.monotonic() + WAIT_S
        while not properties.items() <= self.show().items():
            assert time.monotonic() < deadline, (self.show(), self.journal())
            time.sleep(0.2)

    def journal(self) -> str:
        return self.run("journalctl -u triglot --no-pager")


@pytest.fixture(scope="module")
def service(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    *installing, reloading, enabling = commands_of_the_page()
    assert reloading == "systemctl daemon-reload"
    source = copied_sources(tmp_path_factory.mktemp("systemd") / "source")
    shutil.copytree(CHECKOUT / "examples", source / "examples")
    steps = "\n".join(f"RUN {command}" for command in installing)
    (source / "Dockerfile").write_text(
        f"FROM localhost/debian-systemd\nWORKDIR /source\nCOPY . .\n{steps}\n", encoding="utf-8"
    )
    try:
        # Its systemd still runs on machines with the first generation of control groups.
        packages = ("systemd", "systemd-sysv", "dbus", *PYTHON)
        engine.import_debian("localhost/debian-systemd", "bookworm", packages=packages)
    except NotAvailable as reason:
        end_of_test("containers", str(reason))
    engine.build("service", context=source)
    first = ("--systemd=always", "--privileged", "--network", "none", "service", "/sbin/init")
    engine.run("podman", "run", "--detach", "--name", "service", *first)
    made = Service(engine)
    until = "until systemctl is-system-running | grep -E 'running|degraded'; do sleep 0.2; done"
    made.run(f'timeout {WAIT_S} sh -c "{until}"')
    made.run(reloading)
    made.run(enabling)
    yield made
    engine.run("podman", "rm", "--force", "--time", "5", "service")


def test_systemctl_start_returns_when_clients_are_answered(service: Service) -> None:
    service.run("systemctl restart triglot && /opt/triglot/bin/triglot health")
    shown = service.show()
    assert shown["ActiveState"] == "active"
    assert shown["StatusText"] == "listening on 127.0.0.1:9092, data in /var/lib/triglot"


def test_its_data_are_for_its_user_and_its_group_alone(service: Service) -> None:
    listed = service.run("stat -c '%U:%G %a' /var/lib/triglot /var/lib/triglot/meta.properties")
    assert listed.split("\n")[:2] == ["triglot:triglot 750", "triglot:triglot 640"]


def test_a_broker_that_is_killed_is_started_again(service: Service) -> None:
    before = int(service.show()["NRestarts"])
    service.run("kill -9 $(systemctl show -p MainPID --value triglot)")
    service.wait_for(ActiveState="active", NRestarts=str(before + 1))
    service.run("/opt/triglot/bin/triglot health")


def test_a_broker_that_hangs_is_started_again(service: Service) -> None:
    drop_in = "/etc/systemd/system/triglot.service.d/soon.conf"
    service.run(f"mkdir -p {drop_in.rpartition('/')[0]}")
    service.run(f"printf '[Service]\\nWatchdogSec=4\\nTimeoutAbortSec=2\\n' >{drop_in}")
    service.run("systemctl daemon-reload && systemctl restart triglot")
    before = int(service.show()["NRestarts"])
    service.run("kill -STOP $(systemctl show -p MainPID --value triglot)")
    service.wait_for(ActiveState="active", NRestarts=str(before + 1))
    service.run("/opt/triglot/bin/triglot health")
    service.run(f"rm {drop_in} && systemctl daemon-reload && systemctl restart triglot")


def test_a_stop_is_clean(service: Service) -> None:
    service.run("systemctl restart triglot && systemctl stop triglot")
    shown = service.show()
    assert (shown["ActiveState"], shown["ExecMainStatus"]) == ("inactive", "0")
    assert re.search(r"stopped\s+clean=True", service.journal())
    service.run("test -f /var/lib/triglot/.kafka_cleanshutdown")


def test_wrong_settings_are_not_tried_again(service: Service) -> None:
    before = service.show()["NRestarts"]
    # These tests start it more often than five times in a minute.
    service.run("systemctl stop triglot; systemctl reset-failed triglot || true")
    service.run("cp /etc/triglot/server.properties /tmp/good")
    service.run("echo nonsense.key=1 >>/etc/triglot/server.properties")
    service.run("systemctl start triglot", checked=False)
    service.wait_for(ActiveState="failed", ExecMainStatus="2", NRestarts=before)
    assert "nonsense.key: there is no such key" in service.journal()
    service.run("cp /tmp/good /etc/triglot/server.properties")
    service.run("systemctl reset-failed triglot && systemctl start triglot")
