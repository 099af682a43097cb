"""The pytest plugin: the fixtures `triglot` and `triglot_session`.

pytest finds it by its entry point; nothing of triglot but this file is imported before a test asks
for a fixture. What a failed test's report says of its broker is in `failures`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence
    from pathlib import Path

    from testing.broker import Broker
    from testing.leaks import LeftClients
    from testing.namespace import Namespace
    from testing.warm import WarmBrokers

LOG_LINES = "30"
LEAKS = ("warn", "error", "ignore")
"""What becomes of a test that has left clients."""

SUBJECT = pytest.StashKey["Broker | Namespace"]()
"""The broker of a test, or its part of the session's broker."""
PASSED = pytest.StashKey[bool]()
"""Whether a test has run, and not failed: what holds a client of one that has, nobody can tell."""
LEFT_BEFORE = pytest.StashKey[int]()
"""How many tests of this run have left clients."""
OURS = frozenset({"triglot", "triglot_broker"})
"""Fixtures that start brokers."""
TAKES_OURS = re.compile(r"def \w+\([^)]*\btriglot(_session|_broker)?\b *[,:)]")
"""A function that has one of them among its arguments."""
FOLLOWED = pytest.StashKey[bool]()
"""Whether the next test wants a broker of its own too."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options and ini keys; an option wins over its key."""
    group = parser.getgroup("triglot", "brokers of triglot")
    group.addoption(
        "--triglot-set",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="a setting of the brokers, of Kafka's names; may be given several times",
    )
    group.addoption(
        "--triglot-memory",
        action="store_true",
        default=None,
        help="keep the brokers' data in memory (/dev/shm)",
    )
    group.addoption(
        "--triglot-log-lines",
        metavar="N",
        help=f"lines of a broker's log in the report of a failed test; default {LOG_LINES}",
    )
    group.addoption(
        "--triglot-leaks",
        choices=LEAKS,
        help="what becomes of a test that has left clients: a warning, an error or nothing",
    )
    parser.addini("triglot_leaks", f"the same: {', '.join(LEAKS)}", default=LEAKS[0])
    parser.addini("triglot_settings", "settings of the brokers, one KEY=VALUE a line", "linelist")
    parser.addini("triglot_memory", "keep the brokers' data in memory (/dev/shm)", "bool", False)
    parser.addini(
        "triglot_log_lines", "lines of a broker's log in a failed test's report", default=LOG_LINES
    )


@pytest.fixture(scope="session")
def triglot_settings(pytestconfig: pytest.Config) -> dict[str, str]:
    """The settings of the brokers, from the ini file and the command line.

    A fixture of this name in a test's module or conftest takes its place.
    """
    lines = [*pytestconfig.getini("triglot_settings"), *pytestconfig.getoption("triglot_set")]
    return dict(_pair(line) for line in lines)


@pytest.fixture(scope="session")
def triglot_warm(pytestconfig: pytest.Config) -> Iterator[WarmBrokers]:
    """The brokers of this session that are started before they are asked for."""
    from testing.warm import WarmBrokers

    warm = WarmBrokers(memory=_in_memory(pytestconfig))
    yield warm
    warm.close()


@pytest.fixture
def triglot(
    request: pytest.FixtureRequest, triglot_warm: WarmBrokers, triglot_settings: dict[str, str]
) -> Iterator[Broker]:
    """A broker for this test alone: empty, in a process of its own, on its own port."""
    broker = triglot_warm.take(triglot_settings, another=request.node.stash.get(FOLLOWED, False))
    request.node.stash[SUBJECT] = broker
    yield broker
    try:
        _warn_of_unfired(request, broker)
        if broker.is_running:
            _tell_left_clients(request, broker)
    finally:
        broker.discard()


@pytest.fixture(scope="session")
def triglot_broker(
    pytestconfig: pytest.Config, triglot_settings: dict[str, str]
) -> Iterator[Broker]:
    """The broker that the tests of this session share."""
    from testing.broker import Broker

    with Broker(triglot_settings, memory=_in_memory(pytestconfig)) as broker:
        yield broker


@pytest.fixture
def triglot_session(request: pytest.FixtureRequest, triglot_broker: Broker) -> Iterator[Namespace]:
    """The broker of the session, with names of topics and groups that no other test has."""
    from testing.leaks import LeftClients
    from testing.namespace import Namespace

    namespace = Namespace(triglot_broker, request.node.name)
    request.node.stash[SUBJECT] = namespace
    left = LeftClients(namespace, is_shared=True)
    yield namespace
    _tell_left_clients(request, left)


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> None:
    """Have the process start that starts brokers, while a module is imported that will want one."""
    if TAKES_OURS.search(module_path.read_text(encoding="utf-8", errors="replace")):
        _start_server(parent.config)


def pytest_itemcollected(item: pytest.Item) -> None:
    """The same for a test whose own fixtures want one, while the rest is collected."""
    if OURS.intersection(_fixtures(item)):
        _start_server(item.config)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Note whether a broker for the next test is worth starting during this one."""
    item.stash[FOLLOWED] = "triglot" in _fixtures(nextitem)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add what a failed test's broker says of itself."""
    report = yield
    if report.when == "call":
        item.stash[PASSED] = report.passed
    subject = item.stash.get(SUBJECT, None)
    if subject is not None and report.failed:
        from testing.failures import sections

        lines = item.config.getoption("triglot_log_lines")
        report.sections += sections(
            subject, log_lines=int(lines or item.config.getini("triglot_log_lines"))
        )
    return report


def _start_server(config: pytest.Config) -> None:
    if not config.getoption("collectonly"):
        from testing.processes import broker_server

        broker_server()


def _warn_of_unfired(request: pytest.FixtureRequest, broker: Broker) -> None:
    """A test whose fault never acted has not shown what it was to show."""
    for fault in broker.unfired():
        request.node.warn(pytest.PytestWarning(f"a fault of triglot never acted: {fault}"))


def _tell_left_clients(request: pytest.FixtureRequest, left: Broker | LeftClients) -> None:
    """A test that leaves clients disturbs those that share its groups, and its own process."""
    config = request.config
    wanted = config.getoption("triglot_leaks") or config.getini("triglot_leaks")
    if wanted not in LEAKS:
        raise pytest.UsageError(f"triglot_leaks is one of {', '.join(LEAKS)}, found '{wanted}'")
    if wanted == "ignore" or not request.node.stash.get(PASSED, False):
        return
    from testing.leaks import GONE_WITHIN_S, PATIENT_MAX, SURELY_LEFT_WITHIN_S, LeftClients

    before = config.stash.get(LEFT_BEFORE, 0)
    is_patient = wanted == "error" or before < PATIENT_MAX
    told = (left if isinstance(left, LeftClients) else LeftClients(left)).told(
        GONE_WITHIN_S if is_patient else SURELY_LEFT_WITHIN_S
    )
    config.stash[LEFT_BEFORE] = before + bool(told)
    if told and wanted == "error":
        pytest.fail("the test has left clients: " + "; ".join(told), pytrace=False)
    for line in told:
        request.node.warn(pytest.PytestWarning(f"the test has left a client of triglot: {line}"))


def _fixtures(item: pytest.Item | None) -> Sequence[str]:
    names: Sequence[str] = getattr(item, "fixturenames", ())
    return names


def _in_memory(config: pytest.Config) -> bool:
    return bool(config.getoption("triglot_memory") or config.getini("triglot_memory"))


def _pair(line: str) -> tuple[str, str]:
    key, separator, value = line.partition("=")
    if not separator:
        raise pytest.UsageError(f"a setting of triglot is KEY=VALUE, found '{line}'")
    return key.strip(), value.strip()
