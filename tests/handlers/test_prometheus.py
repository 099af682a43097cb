"""A real Prometheus scrapes a broker by the files in `ops/`, and knows all that they ask for."""

from __future__ import annotations

import json
import re
import subprocess
import time
import urllib.parse
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest

from config.platforms import PORTABLE
from tests.clients.available import end_of_test
from tests.style.sources import CHECKOUT
from tests.support import fetched
from tests.support.scraped import scrape
from tests.support.server_process import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from tests.support.broker_process import BrokerProcess

OPS = CHECKOUT / "ops"
WAIT_S = 60.0


@pytest.fixture(scope="module")
def settings() -> Mapping[str, str]:
    return {"metrics.port": str(free_port())}


@pytest.fixture(scope="module")
def programs() -> Path:
    """The folder with prometheus and promtool."""
    try:
        return fetched.debian_package("prometheus") / "usr/bin"
    except fetched.NotAvailable as reason:
        end_of_test("prometheus", str(reason))


class Prometheus:
    """A running one, asked by its API."""

    def __init__(self, port: int) -> None:
        self.port = port

    def get(self, path: str, **asked: str) -> Any:
        query = urllib.parse.urlencode(asked)
        with urllib.request.urlopen(
            f"http://127.0.0.1:{self.port}/api/v1/{path}?{query}", timeout=10
        ) as answer:
            found = json.load(answer)
        assert found["status"] == "success", found
        return found["data"]

    def query(self, expression: str) -> list[Any]:
        result: list[Any] = self.get("query", query=expression)["result"]
        return result


@pytest.fixture(scope="module")
def prometheus(
    programs: Path, broker: BrokerProcess, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Prometheus]:
    folder, port = tmp_path_factory.mktemp("prometheus"), free_port()
    config = (OPS / "prometheus.yml").read_text(encoding="utf-8")
    config = config.replace(":9404", f":{broker.settings['metrics.port']}")
    config = config.replace("scrape_interval: 15s", "scrape_interval: 1s")
    (folder / "prometheus.yml").write_text(config, encoding="utf-8")
    (folder / "alerts.yml").write_bytes((OPS / "alerts.yml").read_bytes())
    command = [str(programs / "prometheus"), f"--config.file={folder}/prometheus.yml"]
    command += [f"--storage.tsdb.path={folder}/data", f"--web.listen-address=127.0.0.1:{port}"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    running = Prometheus(port)
    deadline = time.monotonic() + WAIT_S
    try:
        while True:
            try:
                if running.query("triglot_info"):
                    break
            except OSError:
                pass
            said = (folder / "log").read_text()[-3000:]
            assert process.poll() is None, said
            assert time.monotonic() < deadline, said
            time.sleep(0.2)
        yield running
    finally:
        process.terminate()
        process.wait(30)


def board_expressions() -> list[str]:
    """Those of the board, as Grafana would ask them for all brokers."""
    board = json.loads((OPS / "grafana-board.json").read_text(encoding="utf-8"))
    found = [target["expr"] for panel in board["panels"] for target in panel.get("targets", ())]
    return [one.replace("$instance", ".*").replace("$__rate_interval", "1m") for one in found]


def alert_expressions() -> list[str]:
    return re.findall(r"expr: (.+)", (OPS / "alerts.yml").read_text(encoding="utf-8"))


def test_promtool_takes_the_rules_and_the_configuration(programs: Path) -> None:
    for what in (("rules", "alerts.yml"), ("config", "prometheus.yml")):
        command = [str(programs / "promtool"), "check", what[0], what[1]]
        ended = subprocess.run(command, cwd=OPS, capture_output=True, text=True, check=False)
        assert ended.returncode == 0, ended.stdout + ended.stderr


def test_promtool_has_nothing_to_say_of_the_page(programs: Path, broker: BrokerProcess) -> None:
    page = scrape(int(broker.settings["metrics.port"])).body
    command = [str(programs / "promtool"), "check", "metrics"]
    ended = subprocess.run(command, input=page, capture_output=True, text=True, check=False)
    said = ended.stdout + ended.stderr
    assert ended.returncode == 0, said


def test_the_broker_is_up_and_every_rule_is_in_order(prometheus: Prometheus) -> None:
    assert [row["value"][1] for row in prometheus.query("up")] == ["1"]
    (group,) = prometheus.get("rules")["groups"]
    assert len(group["rules"]) == len(alert_expressions()) > 10
    assert {rule["health"] for rule in group["rules"]} <= {"ok", "unknown"}, group


def test_every_expression_of_the_board_and_the_rules_can_be_asked(prometheus: Prometheus) -> None:
    for expression in board_expressions() + alert_expressions():
        prometheus.query(expression)


def test_every_metric_of_the_board_and_the_rules_is_on_the_page(broker: BrokerProcess) -> None:
    page = scrape(int(broker.settings["metrics.port"])).body
    described = set(re.findall(r"# TYPE (\S+)", page))
    asked = " ".join(board_expressions() + alert_expressions())
    named = {one.removesuffix("_bucket") for one in re.findall(r"triglot_\w+", asked)}
    if PORTABLE:
        named.discard("triglot_process_resident_memory_bytes")  # docs/platforms.md
    assert named <= described, named - described
    assert len(named) > 25
