"""`triglot check` of directories with transactions in every state, which real brokers wrote."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from protocol.records.batch import Batch
from protocol.records.markers import decode_marker
from protocol.records.walk import walk
from tests.clients.available import end_of_test
from tests.clients.transactions.conversation import Conversation
from tests.clients.transactions.scripts import parse
from tests.clients.transactions.telling import SETTINGS, VERBS, prepare
from tests.style.sources import CHECKOUT
from tests.support.broker_process import BrokerProcess
from tests.support.compacted import wait_until
from tests.support.fetched import NotAvailable
from tests.support.kafka_process import KafkaProcess
from tests.support.kafka_release import RELEASES
from tests.support.typed_command import asked

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.kafka_release import Release
    from tests.support.server_process import ServerProcess

pytestmark = [pytest.mark.clients, pytest.mark.timeout(300)]

UNVERIFIED = {
    **SETTINGS,
    "transaction.partition.verification.enable": "false",
    "transaction.state.log.num.partitions": "1",
    "transaction.max.timeout.ms": "900000",
}
LOG = "00000000000000000000.log"
RECORDS_OF_ONE = 4
"""Of the state topic: Empty, Ongoing, PrepareCommit, CompleteCommit."""
STATES, ORDERS = f"__transaction_state-0/{LOG}", f"orders-0/{LOG}"


def checked(path: Path) -> tuple[int, list[tuple[str, str, str, int]]]:
    """The exit code, and severity, kind, folder and offset of each finding that is not of any
    crash."""
    command = [sys.executable, "-m", "tools", "check", "--json", "--deep", str(path)]
    ended = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False)
    assert ended.stderr == ""
    *found, _ = (json.loads(line) for line in ended.stdout.splitlines())
    usual = ("not-clean", "left-over", "index-zeros")
    return ended.returncode, [_short(one) for one in found if one["kind"] not in usual]


def _short(one: dict[str, Any]) -> tuple[str, str, str, int]:
    return one["severity"], one["kind"], one["partition"], one["offset"]


def tell(server: ServerProcess, *lines: str) -> list[str]:
    talk = Conversation(server, "")
    try:
        return [VERBS[step.verb](talk, step) for step in map(parse, lines)]
    finally:
        talk.close()


def commit_one(server: ServerProcess) -> None:
    tell(
        server,
        "topic orders",
        "init/4 id=bank as=b",
        "add/3 id=bank by=b orders:0",
        "produce/11 id=bank by=b orders:0 seq=0 x",
        "end/3 id=bank by=b commit",
    )


def complete_one(server: BrokerProcess) -> None:
    """The same, and wait for the record of its end, which is written a moment after the answer."""
    commit_one(server)
    states = server.data / STATES
    wait_until(lambda: len(contents(states)) == RECORDS_OF_ONE, "the record of the end")


def cut_last_batch(path: Path) -> None:
    """As if the power had gone before it was on the disk."""
    data = path.read_bytes()
    *_, (position, _, _) = walk(data)
    path.write_bytes(data[:position])


def contents(path: Path) -> list[bytes | str | None]:
    """The values in a log, and its markers."""
    whole = memoryview(path.read_bytes())
    found: list[bytes | str | None] = []
    for position, size, _ in walk(whole):
        one = Batch(whole[position : position + size])
        if one.is_control:
            marker = decode_marker(whole[position : position + size])
            found.append("commit" if marker is not None and marker.commit else "abort")
        else:
            found += [record.value for record in one.records()]
    return found


def test_a_commit_that_lost_its_end_to_a_power_cut_is_found_and_put_right_by_a_start(
    tmp_path: Path,
) -> None:
    data = tmp_path / "data"
    server = BrokerProcess(data, settings=UNVERIFIED)
    with server:
        complete_one(server)
        server.kill()
        assert checked(data) == (0, [])

        whole = (data / ORDERS).read_bytes()
        cut_last_batch(data / ORDERS)
        lost = "marker-missing", "orders-0"
        assert checked(data) == (1, [("warning", *lost, 0)])
        cut_last_batch(data / STATES)
        decided = ("note", "unfinished-end", "__transaction_state-0", 2)
        assert checked(data) == (0, [decided])
        (data / ORDERS).write_bytes(whole)
        assert checked(data) == (0, [decided])

        cut_last_batch(data / ORDERS)
        server.start()
        server.stop()
        assert checked(data) == (0, [])
        assert contents(data / ORDERS) == [b"x", "commit"]
        server.start()


def test_what_is_open_is_flawless_and_what_hangs_is_not(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with BrokerProcess(data, settings=UNVERIFIED) as server:
        complete_one(server)
        tell(server, "init/4 id=late as=l", "add/3 id=late by=l orders:0")
        server.kill()
        assert checked(data) == (0, [])
        server.start()
        # an epoch that nobody has given out, as a broker without verification takes it
        tell(server, "init/4 id=bank as=b", "produce/11 id=bank by=b+3 orders:0 seq=0 x")
        server.stop()
        code, found = checked(data)
        assert (code, found) == (1, [("warning", "hanging-transaction", "orders-0", 2)])
        server.start()


def abandoned(server: ServerProcess) -> None:
    """Transactions of three kinds: in hand, with its time nearly up, and late."""
    tell(
        server,
        "topic orders 3",
        "init/4 id=open as=o",
        "add/3 id=open by=o orders:0",
        "produce/11 id=open by=o orders:0 seq=0 x",
        "init/4 id=late as=l",
        "add/3 id=late by=l orders:1",
        "produce/11 id=late by=l orders:1 seq=0 committed",
        "end/3 id=late by=l commit",
        "produce/11 id=late by=l orders:1 seq=1 late",
        "init/4 id=older as=b",
        "produce/11 id=older by=b orders:2 seq=0 x",
        "init/4 id=older as=c",
    )


@pytest.mark.java
@pytest.mark.long
@pytest.mark.parametrize("release", [pytest.param(one, id=one.name) for one in RELEASES])
def test_kafkas_directories_with_transactions_that_hang(tmp_path: Path, release: Release) -> None:
    folder = tmp_path / "kafka"
    try:
        kafka = KafkaProcess(folder, settings=UNVERIFIED, release=release)
    except NotAvailable as reason:
        end_of_test("java", str(reason))
    with kafka:
        prepare(kafka, 0)
        commit_one(kafka)
        kafka.stop()
        assert checked(folder / "logs") == (0, [])
        kafka.start()
        prepare(kafka, 0)
        tell(kafka, "delete-topic orders")
        abandoned(kafka)
        kafka.stop()
        hanging = [("warning", "hanging-transaction", f"orders-{n}") for n in (1, 2)]
        code, found = checked(folder / "logs")
        assert (code, found) == (1, [(*hanging[0], 2), (*hanging[1], 0)])

    # Ours ends them all, and commits none of what nobody has committed.
    with BrokerProcess(folder / "logs", settings=UNVERIFIED) as ours:
        prepare(ours, None)
        asked("transactions", ours.bootstrap, "abort", "--transactional-id", "late")
        ours.stop()
        assert checked(folder / "logs") == (0, [])
        logs = [folder / "logs" / f"orders-{n}" / LOG for n in range(3)]
        assert [contents(log) for log in logs] == [
            [b"x"],
            [b"committed", "commit", b"late", "abort"],
            [b"x", "abort"],
        ]
        ours.start()
