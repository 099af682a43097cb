"""Transactions that one killed process has left are settled by the start of several."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.broker.test_processes import HOST, WITHIN_S, Directory, directory, until
from tests.clients.test_transactions_of_processes import (
    PARTITIONS,
    TOPIC,
    committed,
    make_topic,
    produce_everywhere,
)
from tests.support.server_process import free_port

pytestmark = [pytest.mark.clients, pytest.mark.linux]

__all__ = ["directory"]

SETTLED = "transactions that one process left without a stop are settled"
ENDLESS = """
import sys
from broker.coordinator.transactions.runtime import TransactionRuntime
from broker.processes import settling
from tools.cli import main
settling.MARKERS_WITHIN_S = {markers_within_s}
def is_settled(runtime):
    print("settling", flush=True)
    return False
TransactionRuntime.is_settled = property(is_settled)
sys.exit(main())
"""
"""The command, with a disk that takes no markers."""


@pytest.fixture
def listen() -> tuple[str, str]:
    """Ports that are the same after each start."""
    return "--listen", f"{HOST}:{free_port(2)}"


def producer_of(listen: tuple[str, str], transactional_id: str) -> Producer:
    producer = Producer(
        {
            "bootstrap.servers": listen[1],
            "transactional.id": transactional_id,
            "transaction.timeout.ms": 60_000,
            "log_level": 0,  # that the broker is away
        }
    )
    producer.init_transactions(WITHIN_S)
    return producer


def commit_one(directory: Directory, listen: tuple[str, str]) -> None:
    """A transaction with a record in each partition of a new topic."""
    make_topic(directory)
    producer = producer_of(listen, "x")
    producer.begin_transaction()
    produce_everywhere(producer, b"v")
    producer.commit_transaction(WITHIN_S)


def kill(one: Directory) -> None:
    one.process.kill()
    one.process.communicate()


def logs_of(one: Directory) -> list[Path]:
    return [one.data / f"{TOPIC}-{index}" / f"{0:020}.log" for index in range(PARTITIONS)]


@pytest.mark.parametrize("markers_are_lost", [False, True])
def test_transactions_of_a_killed_process_are_settled_by_the_start_of_several(
    directory: Directory, listen: tuple[str, str], markers_are_lost: bool
) -> None:
    # Given a transaction that is aborted, two that are open, and one whose end was just answered
    directory.start(1, *listen)
    make_topic(directory)
    aborted, left, goes_on, ended = (
        producer_of(listen, name) for name in ("aborted", "left", "goes on", "ended")
    )
    for producer in (aborted, left, goes_on, ended):
        producer.begin_transaction()
    produce_everywhere(aborted, b"aborted")
    aborted.abort_transaction(WITHIN_S)
    produce_everywhere(left, b"left open")
    produce_everywhere(goes_on, b"open 1")
    produce_everywhere(ended, b"ended")
    before = {log: log.stat().st_size for log in logs_of(directory)}
    ended.commit_transaction(WITHIN_S)
    if markers_are_lost:
        until(lambda: all(log.stat().st_size > size for log, size in before.items()))
    kill(directory)
    if markers_are_lost:  # as by a loss of power
        for log, size in before.items():
            os.truncate(log, size)

    # When several processes serve the directory
    directory.start(2, *listen)

    # Then all producers go on, and what was committed is there once
    (told,) = directory.said(SETTLED)
    assert told["seconds"] < WITHIN_S
    produce_everywhere(goes_on, b"open 2")
    goes_on.commit_transaction(WITHIN_S)
    again = producer_of(listen, "left")  # which aborts what was left open
    for producer in (aborted, ended, again):
        producer.begin_transaction()
        produce_everywhere(producer, b"after")
        producer.commit_transaction(WITHIN_S)
    found = committed(directory)
    wanted = [b"after", b"after", b"after", b"ended", b"open 1", b"open 2"]
    assert [sorted(values) for values in found] == [wanted] * PARTITIONS
    directory.stop()

    # And no other start has to do it
    for processes in (2, 1, 2):
        directory.start(processes, *listen)
        directory.stop()
    assert len(directory.said(SETTLED)) == 1


def test_several_processes_that_were_killed_settle_nothing_at_their_start(
    directory: Directory, listen: tuple[str, str]
) -> None:
    directory.start(2, *listen)
    commit_one(directory, listen)
    os.kill(directory.process.pid, signal.SIGSTOP)  # or it would begin others
    for child in directory.children():
        os.kill(child, signal.SIGKILL)
    kill(directory)

    directory.start(2, *listen)

    assert committed(directory) == [[b"v"]] * PARTITIONS
    directory.stop()
    assert SETTLED not in directory.log()


def test_several_processes_begin_again_after_the_end_of_their_supervisor(
    directory: Directory, listen: tuple[str, str]
) -> None:
    """They stop in good order, and nobody is there to note it."""
    directory.start(2, *listen)
    commit_one(directory, listen)
    children = directory.children()
    kill(directory)
    until(lambda: not any(Path(f"/proc/{child}").exists() for child in children))

    directory.start(2, *listen)

    assert committed(directory) == [[b"v"]] * PARTITIONS
    directory.stop()


@pytest.fixture
def unsettled(directory: Directory, listen: tuple[str, str]) -> Directory:
    """One that a process left when it had committed a transaction."""
    directory.start(1, *listen)
    commit_one(directory, listen)
    kill(directory)
    return directory


def begin_without_end(one: Directory, listen: tuple[str, str], *, markers_within_s: float) -> None:
    """Start two processes that settle, and are not done."""
    code = ENDLESS.format(markers_within_s=markers_within_s)
    words = one.words("--processes", "2", *listen)[3:]
    one.process = subprocess.Popen(
        [sys.executable, "-c", code, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert one.process.stdout is not None
    assert one.process.stdout.readline() == b"settling\n"


def expect_it_to_be_settled(one: Directory, listen: tuple[str, str]) -> None:
    one.start(2, *listen)
    assert len(one.said(SETTLED)) == 1
    assert committed(one) == [[b"v"]] * PARTITIONS
    one.stop()


def test_a_start_that_cannot_settle_is_refused_with_the_reason(
    unsettled: Directory, listen: tuple[str, str]
) -> None:
    begin_without_end(unsettled, listen, markers_within_s=0.1)

    _, said = unsettled.process.communicate(timeout=WITHIN_S)

    assert unsettled.process.returncode == 1
    assert b"could not be settled (markers could not be written" in said
    assert b"start it once without --processes" in said
    expect_it_to_be_settled(unsettled, listen)


def test_a_stop_while_it_settles_is_one_and_the_next_start_settles_again(
    unsettled: Directory, listen: tuple[str, str]
) -> None:
    begin_without_end(unsettled, listen, markers_within_s=600)

    unsettled.process.terminate()
    unsettled.process.communicate(timeout=5)

    assert unsettled.process.returncode == 0
    expect_it_to_be_settled(unsettled, listen)


@pytest.mark.parametrize("whom", ["the process", "the supervisor"])
def test_a_kill_while_it_settles_leaves_it_to_the_next_start(
    unsettled: Directory, listen: tuple[str, str], whom: str
) -> None:
    begin_without_end(unsettled, listen, markers_within_s=600)

    (child,) = unsettled.children()
    os.kill(child if whom == "the process" else unsettled.process.pid, signal.SIGKILL)
    _, said = unsettled.process.communicate(timeout=WITHIN_S)

    if whom == "the process":
        assert unsettled.process.returncode == 1
        assert b"a process could not start" in said
    until(lambda: not Path(f"/proc/{child}").exists())  # it is told, and stops
    expect_it_to_be_settled(unsettled, listen)
