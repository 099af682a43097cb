"""The pytest plugin, in test runs of its own."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.broker_process import CHECKOUT

GONE_WITHIN_S = 60.0


class TestRun:
    """A folder with a test file, in which pytest is run."""

    __test__ = False

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, tests: str, ini: str = "") -> None:
        (self.folder / "test_it.py").write_text(tests)
        (self.folder / "pytest.ini").write_text("[pytest]\n" + ini)

    def run(self, *arguments: str, plugins: tuple[str, ...] = ()) -> str:
        """What it printed. The last line counts the outcomes. No other plugins are loaded than ours
        and these."""
        run = self.begin(*arguments, plugins=plugins)
        return run.communicate()[0]

    def begin(self, *arguments: str, plugins: tuple[str, ...] = ()) -> subprocess.Popen[str]:
        """A run that goes on."""
        loaded = [word for name in ("testing.plugin", *plugins) for word in ("-p", name)]
        return subprocess.Popen(
            [
                *(sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-rN"),
                *(*loaded, *arguments),
            ],
            cwd=self.folder,
            env={
                **os.environ,
                "PYTHONPATH": str(CHECKOUT),
                "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )


@pytest.fixture
def tests(tmp_path: Path) -> TestRun:
    return TestRun(tmp_path)


OWN_FIXTURE = """
import pytest

@pytest.fixture
def shop(triglot):
    return triglot
"""

COLLECTED = """
import testing.processes

def has_started():
    return testing.processes._server is not None

BEFORE = has_started()

def test_it_has_been_started():
    assert (BEFORE, has_started()) == EXPECTED

def test_with_one(FIXTURE):
    pass
"""


@pytest.mark.parametrize(
    ("fixture", "expected"),
    [("triglot", "(True, True)"), ("shop", "(False, True)"), ("", "(False, False)")],
)
def test_the_process_of_brokers_is_started_while_tests_are_collected(
    tests: TestRun, fixture: str, expected: str
) -> None:
    (tests.folder / "conftest.py").write_text(OWN_FIXTURE)
    tests.write(COLLECTED.replace("FIXTURE", fixture).replace("EXPECTED", expected))
    assert "2 passed" in tests.run()


def test_a_run_that_only_collects_starts_none(tests: TestRun) -> None:
    tests.write(COLLECTED.replace("FIXTURE", "triglot") + "\nassert not has_started()\n")
    assert "2 tests collected" in tests.run("--collect-only")


EMPTY_EACH = """
import pytest

@pytest.mark.parametrize("number", range(4))
def test_it_is_empty(triglot, number):
    assert triglot.topics() == []
    triglot.topic("orders").create()

def test_nothing():
    pass

def test_the_last(triglot):
    assert triglot.topics() == []
"""


def test_every_test_has_an_empty_broker(tests: TestRun) -> None:
    tests.write(EMPTY_EACH)
    assert "6 passed" in tests.run()


def test_workers_of_xdist_have_brokers_of_their_own(tests: TestRun) -> None:
    tests.write(EMPTY_EACH.replace("range(4)", "range(6)"))
    assert "8 passed" in tests.run("-n", "2", plugins=("xdist.plugin",))


@pytest.mark.long
def test_sixteen_workers_of_xdist_have_them_too(tests: TestRun) -> None:
    tests.write(EMPTY_EACH.replace("range(4)", "range(30)"))
    assert "32 passed" in tests.run("-n", "16", plugins=("xdist.plugin",))


ENDLESS = """
import os, time

def test_it(triglot):
    with open("pids", "w") as file:
        file.write(f"{triglot.pid} {triglot.data}")
    os.rename("pids", "running")
    while True:
        time.sleep(60)
"""


def test_a_test_run_that_is_killed_takes_its_brokers_with_it(tests: TestRun) -> None:
    tests.write(ENDLESS)
    run = tests.begin()
    running = tests.folder / "running"
    while not running.exists():
        assert run.poll() is None
        time.sleep(0.05)
    broker, data = running.read_text().split()
    process = os.pidfd_open(int(broker))
    run.kill()
    run.communicate()
    assert select.select([process], [], [], GONE_WITHIN_S)[0]
    os.close(process)
    while Path(data).exists():  # removed by the process that the broker came from
        time.sleep(0.05)


SHARED = """
import pytest

@pytest.mark.parametrize("number", range(3))
def test_names_are_its_own(triglot_session, triglot_broker, number):
    assert triglot_session.topics() == []
    assert triglot_session.groups() == {}
    triglot_session.topic("orders").create()
    assert triglot_session.topics() == ["orders"]
    assert len(triglot_broker.topics()) == number + 1
    assert triglot_session.name("orders") in triglot_broker.topics()
"""


def test_tests_that_share_a_broker_have_names_of_their_own(tests: TestRun) -> None:
    tests.write(SHARED)
    assert "3 passed" in tests.run()


WITH_ASYNCIO = """
import asyncio

async def test_it_is_there(triglot):
    reader, writer = await asyncio.open_connection(triglot.host, triglot.port)
    writer.close()
    await writer.wait_closed()

def test_it_is_there_without(triglot):
    assert triglot.topics() == []
"""


def test_it_goes_with_pytest_asyncio_and_without(tests: TestRun) -> None:
    tests.write(WITH_ASYNCIO, "asyncio_mode = auto\n")
    assert "2 passed" in tests.run(plugins=("pytest_asyncio.plugin",))
    tests.write(WITH_ASYNCIO)
    assert "1 passed, 1 deselected" in tests.run("-k", "without")


FAILING = """
from client.cluster import Cluster, TopicPartition
from protocol.records.builder import build_batch

def test_that_fails(triglot):
    triglot.topic("orders").create(2)
    place = TopicPartition("orders", 1)
    triglot.cluster.produce(place, [build_batch([(1, None, b"one", ()), (2, None, b"two", ())])])
    triglot.cluster.commit_offsets("billing", {place: 1})
    with Cluster(triglot.bootstrap, client_id=b"a-client") as cluster:
        cluster.topics()
    triglot.topic("orders").wait_for(count=3, timeout_s=0)

def test_that_fails_with_a_part(triglot_session):
    triglot_session.topic("payments").create()
    assert False

def test_whose_broker_is_gone(triglot):
    triglot.kill()
    assert False
"""


def test_the_report_of_a_failed_test_says_what_was_in_its_broker(tests: TestRun) -> None:
    tests.write(FAILING)
    told = tests.run("--triglot-log-lines", "1")
    assert "topic 'orders' has 2 records, wanted 3 within 0 s" in told
    assert "orders-0  offsets 0..0\norders-1  offsets 0..2\n" in told
    assert "billing  Empty\n  orders-1  committed 1, 1 left\n" in told
    assert ".payments-0  offsets 0..0\n" in told or "\npayments-0  offsets 0..0\n" in told
    assert "the broker does not run: start() starts it" in told
    assert "log of <triglot.testing.Broker" in told
    assert "last requests to <triglot.testing.Broker" in told
    assert "a-client: Metadata v" in told
    assert "3 failed" in told


SETTINGS = """
def test_of_all(triglot, triglot_session):
    for broker in (triglot, triglot_session):
        broker.topic("orders").create(-1)
        assert len(broker.topic("orders").ends()) == 4

def test_retention(triglot):
    assert triglot.settings["log.retention.hours"] == "2"
"""


def test_settings_come_from_the_ini_file_and_the_command_line(tests: TestRun) -> None:
    ini = "triglot_settings =\n  num.partitions=4\n  log.retention.hours=1\ntriglot_memory = true\n"
    tests.write(SETTINGS, ini)
    assert "2 passed" in tests.run("--triglot-set", "log.retention.hours=2")


OVERRIDDEN = """
import pytest

@pytest.fixture
def triglot_settings(triglot_settings, request):
    return {**triglot_settings, "num.partitions": str(request.param)}

@pytest.mark.parametrize("triglot_settings", [2, 3, 3], indirect=True)
def test_partitions(triglot, triglot_settings):
    ends = triglot.topic("orders").create(-1).ends()
    assert len(ends) == int(triglot_settings["num.partitions"])
"""


def test_a_fixture_of_the_test_module_gives_other_settings(tests: TestRun) -> None:
    tests.write(OVERRIDDEN)
    assert "3 passed" in tests.run()


def test_a_setting_without_a_value_is_told_in_one_line(tests: TestRun) -> None:
    tests.write("def test_it(triglot): pass\n")
    told = tests.run("--triglot-set", "num.partitions")
    assert "a setting of triglot is KEY=VALUE, found 'num.partitions'" in told


UNFIRED = """
def test_whose_fault_acts(triglot):
    with triglot.faults.fail("Metadata", error="UNKNOWN_SERVER_ERROR", topic="orders"):
        triglot.topic("orders").create()

def test_whose_fault_never_acts(triglot):
    triglot.faults.fail("Produce", error="MESSAGE_TOO_LARGE", topic="orders")
"""


def test_a_fault_that_never_acted_is_told_at_the_end_of_the_test(tests: TestRun) -> None:
    tests.write(UNFIRED)
    told = tests.run()
    assert "2 passed, 1 warning" in told
    assert "a fault of triglot never acted: id=1, api=Produce" in told


LEAKING = """
import pytest
from tests.support.caller import Caller
from tests.support.consumer_member import ConsumerMember

LEFT = []

def member_of(broker, group, topic):
    LEFT.append(caller := Caller(broker.host, broker.port))
    caller.client_id = "reader"
    while ConsumerMember(caller, group, topics=[topic], member_id="one").join().error_code:
        pass

@pytest.mark.parametrize("number", range(4))
def test_that_leaks(triglot, number):
    triglot.topic("orders").create()
    member_of(triglot, "billing", "orders")

def test_that_closes(triglot):
    with Caller(triglot.host, triglot.port) as caller:
        caller.create_topic("orders")

def test_that_leaks_on_a_shared_broker(triglot_session, triglot_broker):
    orders = triglot_session.name("orders")
    triglot_session.topic("orders").create()
    member_of(triglot_broker, triglot_session.name("shipping"), orders)

def test_that_leaks_nothing_of_its_own(triglot_session, triglot_broker):
    LEFT.append(Caller(triglot_broker.host, triglot_broker.port))

def test_whose_broker_has_gone(triglot):
    triglot.kill()

class Forgotten:
    def __init__(self, broker):
        self.caller, self.itself = Caller(broker.host, broker.port), self

    def __del__(self):
        self.caller.socket.close()

def test_whose_client_is_closed_when_it_is_collected(triglot):
    Forgotten(triglot)
"""


def test_a_test_that_leaves_clients_is_told_which_and_of_which_group(tests: TestRun) -> None:
    tests.write(LEAKING)
    told = tests.run()
    assert "9 passed, 10 warnings" in told
    assert told.count("client 'reader' is still connected, from 127.0.0.1:") == 5
    for group in ("billing", "shipping"):
        assert f"group '{group}' still has client 'reader' as a member" in told
    assert "test_it.py::test_that_leaks[0]\n" in told
    assert "test_that_closes" not in told
    assert "test_whose_client_is_closed" not in told


def test_it_is_an_error_or_nothing_where_the_ini_file_says_so(tests: TestRun) -> None:
    tests.write(LEAKING, "triglot_leaks = error\n")
    told = tests.run()
    assert "9 passed, 5 errors" in told
    assert "the test has left clients: client 'reader' is still connected" in told
    assert "9 passed in" in tests.run("--triglot-leaks", "ignore")
    tests.write(LEAKING, "triglot_leaks = all\n")
    assert "triglot_leaks is one of warn, error, ignore, found 'all'" in tests.run()
