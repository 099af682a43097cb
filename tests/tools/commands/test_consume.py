"""`triglot consume` as a user types it, and what it says where it cannot read."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from client.cluster import Cluster, TopicPartition
from protocol.records.builder import batch_of_rows, build_batch
from tests.support.broker_process import CHECKOUT, BrokerProcess
from tests.support.caller import Caller
from tests.support.group_caller import GroupCaller, Member
from tests.support.interruptible import take_interrupts
from tests.support.typed_bytes import typed
from tools.consume.actions import shown_on_a_terminal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.tools.commands.conftest import Doors


@pytest.fixture
def topic(bootstrap: str, new_name: Callable[[], str]) -> str:
    name = new_name()
    words = ("--partitions", "2", "--bootstrap", bootstrap)
    assert typed("topics", "create", name, *words).code == 0
    return name


@pytest.fixture
def client(bootstrap: str) -> Iterator[Cluster]:
    with Cluster(bootstrap) as cluster:
        yield cluster


def filled(client: Cluster, topic: str, partition: int, count: int) -> TopicPartition:
    """Records with the values 0, 1, ... and times of a second for each, in batches of three."""
    place = TopicPartition(topic, partition)
    rows = [(1000 * n, None, b"%d" % n, ()) for n in range(count)]
    for at in range(0, count, 3):
        client.produce(place, [batch_of_rows(rows[at : at + 3])])
    return place


@pytest.mark.parametrize(
    ("door", "words", "wanted"),
    [
        ("TODAY", (), range(10)),
        ("TODAY", ("--from-offset", "4"), range(4, 10)),
        ("TODAY", ("--last", "3"), range(7, 10)),
        ("TODAY", ("--last", "99"), range(10)),
        ("TODAY", ("--from-end",), range(0)),
        ("TODAY", ("--count", "4"), range(4)),
        *(
            (door, ("--from-offset", "4", "--until-offset", "8"), range(4, 8))
            for door in ("V08", "V09", "V010", "V011", "V21", "V41", "TODAY")
        ),
    ],
)
def test_reading_begins_and_ends_where_it_is_told_to(
    door: str,
    words: tuple[str, ...],
    wanted: range,
    broker: Doors,
    client: Cluster,
    topic: str,
) -> None:
    filled(client, topic, 1, 10)
    end = () if "--until-offset" in words else ("--until-end",)
    ran = typed("consume", f"{topic}:1", *words, *end, "--bootstrap", broker.at(door))
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.split() == [b"%d" % number for number in wanted]


def test_reading_begins_and_ends_at_times(bootstrap: str, client: Cluster, topic: str) -> None:
    filled(client, topic, 0, 10)
    words = ("--from-time", "2500", "--until-time", "1970-01-01T00:00:07Z")
    ran = typed("consume", topic, *words, "--bootstrap", bootstrap)
    assert ran.out.split() == [b"3", b"4", b"5", b"6"]
    ran = typed("consume", topic, "--until-time", "99000", "--bootstrap", bootstrap)
    assert len(ran.out.split()) == 10


def test_all_partitions_and_topics_are_read(
    bootstrap: str, client: Cluster, topic: str, new_name: Callable[[], str]
) -> None:
    other = new_name()
    assert typed("topics", "create", other, "--bootstrap", bootstrap).code == 0
    for place in ((topic, 0), (topic, 1), (other, 0)):
        filled(client, *place, 4)
    words = ("--until-end", "--format", r"%t/%p@%o=%s\n", "--bootstrap", bootstrap)
    ran = typed("consume", topic, other, *words)
    lines = ran.out.decode().split()
    for name, partition in ((topic, 0), (topic, 1), (other, 0)):
        start = f"{name}/{partition}@"
        found = [line.removeprefix(start) for line in lines if line.startswith(start)]
        assert found == [f"{number}={number}" for number in range(4)]


def test_a_format_has_every_part_of_a_record(bootstrap: str, client: Cluster, topic: str) -> None:
    headers = (("a", b"1"), ("b", None))
    rows = [(1_769_860_800_123, b"\xff", b"v%", headers), (-1, None, None, ())]
    client.produce(TopicPartition(topic, 0), [build_batch(rows)])
    form = r"%t %p %o %T %D %k %K %s %S %h 100%%\t\x21\n"
    words = ("--until-end", "--format", form, "--null", "~", "--bootstrap", bootstrap)
    ran = typed("consume", topic, *words)
    first, second, end = ran.out.split(b"\n")
    assert end == b""
    assert first == topic.encode() + (
        b" 0 0 1769860800123 2026-01-31T12:00:00.123Z \xff 1 v% 2 a=1,b= 100%\t!"
    )
    assert second == topic.encode() + (b" 0 1 -1 1969-12-31T23:59:59.999Z ~ -1 ~ -1  100%\t!")


@pytest.mark.parametrize("form", ["%x", "%", "a%", r"\q", "%%%"])
def test_a_format_with_what_is_not_known_is_exit_code_2(form: str) -> None:
    ran = typed("consume", "t", "--format", form)
    assert ran.code == 2
    assert ran.refusal.startswith("triglot: --format: ")


def test_json_has_text_where_it_is_and_base64_where_it_is_not(
    bootstrap: str, client: Cluster, topic: str
) -> None:
    rows = [(5, b"\xff", 'quoted " \\ \n ä \0'.encode(), ((b"\xfe", b"\x80"), ("n", b"x")))]
    client.produce(TopicPartition(topic, 0), [build_batch(rows)])
    words = ("--until-end", "--json", "--bootstrap", bootstrap)
    (record,) = typed("consume", topic, *words).answers
    assert record == {
        "topic": topic,
        "partition": 0,
        "offset": 0,
        "timestamp_ms": 5,
        "key_base64": "/w==",
        "value": 'quoted " \\ \n ä \0',
        "headers": [{"name": "\ufffd", "value_base64": "gA=="}, {"name": "n", "value": "x"}],
    }


def test_a_group_says_where_to_begin_and_is_told_how_far_it_was_read(
    bootstrap: str, client: Cluster, topic: str
) -> None:
    first, second = filled(client, topic, 0, 6), filled(client, topic, 1, 6)
    client.commit_offsets("billing", {first: 4})
    words = ("--group", "billing", "--commit", "--bootstrap", bootstrap)
    ran = typed("consume", topic, *words, "--until-end")
    assert sorted(ran.out.split()) == [b"0", b"1", b"2", b"3", b"4", b"4", b"5", b"5"]
    assert client.committed_offsets("billing", [first, second]) == {first: 6, second: 6}
    filled(client, topic, 0, 3)
    assert typed("consume", topic, *words, "--count", "2").out.split() == [b"0", b"1"]
    assert client.committed_offsets("billing", [first]) == {first: 8}


def test_a_group_with_members_is_not_told_and_the_sentence_says_so(
    bootstrap: str, client: Cluster, topic: str
) -> None:
    filled(client, topic, 0, 2)
    host, _, port = bootstrap.rpartition(":")
    with Member(GroupCaller(host, int(port), client_id="member"), topic) as member:
        member.enter()
        words = ("--group", topic, "--commit", "--until-end", "--bootstrap", bootstrap)
        ran = typed("consume", topic, *words)
    assert (ran.code, ran.out) == (1, b"0\n1\n")
    assert ran.err == (
        f"triglot: group '{topic}' has members, and takes no offsets of others: stop them, or "
        "leave --commit away\n"
    )


@pytest.mark.parametrize("word", ["--from-offset", "--group"])
def test_an_offset_out_of_range_is_told_with_the_log(
    word: str, bootstrap: str, client: Cluster, topic: str
) -> None:
    place = filled(client, topic, 0, 3)
    client.commit_offsets("far", {place: 9})
    value = "far" if word == "--group" else "9"
    said = typed("consume", f"{topic}:0", word, value, "--bootstrap", bootstrap).refusal
    assert f"{place} has no offset 9: its log goes from 0 to 3" in said
    assert "--from-start" in said


def test_aborted_records_are_printed_only_when_asked_for(
    bootstrap: str, client: Cluster, topic: str
) -> None:
    place = TopicPartition(topic, 0)
    producer = client.transactional_producer(f"id-{topic}")
    producer.initialize()
    for value, commit in ((b"kept", True), (b"dropped", False), (b"kept too", True)):
        producer.send(place, build_batch([(0, None, value, ())]))
        if commit:
            producer.commit()
        else:
            producer.abort()
    words = ("--until-end", "--bootstrap", bootstrap)
    assert typed("consume", topic, *words).out == b"kept\nkept too\n"
    everything = typed("consume", topic, *words, "--uncommitted").out
    assert everything == b"kept\ndropped\nkept too\n"


def test_records_are_printed_as_they_come_until_there_are_enough(
    bootstrap: str, client: Cluster, topic: str
) -> None:
    words = [sys.executable, "-m", "tools", "consume", topic, "--bootstrap", bootstrap]
    with subprocess.Popen(
        [*words, "--count", "4"], cwd=CHECKOUT, stdout=subprocess.PIPE
    ) as running:
        assert running.stdout is not None
        filled(client, topic, 0, 2)
        assert [running.stdout.readline() for _ in range(2)] == [b"0\n", b"1\n"]
        filled(client, topic, 1, 2)
        assert running.stdout.read() == b"0\n1\n"
    assert running.returncode == 0


def test_an_interruption_commits_what_was_printed(
    bootstrap: str, client: Cluster, topic: str
) -> None:
    place = filled(client, topic, 0, 5)
    words = [sys.executable, "-m", "tools", "consume", topic, "--bootstrap", bootstrap]
    with subprocess.Popen(
        [*words, "--group", topic, "--commit"],
        cwd=CHECKOUT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=take_interrupts,
    ) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        assert [running.stdout.readline() for _ in range(5)][-1] == b"4\n"
        # Once it goes on it has taken note of those; of the next one it may have, or not.
        filled(client, topic, 0, 1)
        assert running.stdout.readline() == b"0\n"
        os.kill(running.pid, signal.SIGINT)
        assert running.stderr.read() == b"triglot: interrupted\n"
    assert running.returncode == 1
    assert client.committed_offsets(topic, [place])[place] in (5, 6)


def test_a_reader_that_goes_ends_it_without_a_word(
    bootstrap: str, client: Cluster, topic: str
) -> None:
    rows = [(0, None, bytes(1000), ())] * 500
    for _ in range(4):
        client.produce(TopicPartition(topic, 0), [batch_of_rows(rows)])
    command = f"{sys.executable} -m tools consume {topic} --bootstrap {bootstrap} | head -c 1000"
    run = subprocess.run(command, shell=True, cwd=CHECKOUT, capture_output=True, check=True)
    assert run.stdout == bytes(1000)
    assert run.stderr == b""


def test_a_damaged_batch_ends_it_or_is_left_out(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with BrokerProcess(data) as broker, Cluster(broker.bootstrap) as client:
        client.create_topic("t", 1)
        filled(client, "t", 0, 9)
        (log,) = data.glob("t-0/*.log")
        content = bytearray(log.read_bytes())
        content[content.index(b"4")] ^= 1  # a value in the second batch
        log.write_bytes(content)
        words = ("consume", "t", "--until-end", "--bootstrap", broker.bootstrap)
        failed = typed(*words)
        skipped = typed(*words, "--on-corrupt", "skip")
    assert (failed.code, failed.out) == (1, b"0\n1\n2\n")
    assert failed.err.count("\n") == 1
    assert "t-0 offset 3: " in failed.err
    assert "--on-corrupt skip" in failed.err
    assert (skipped.code, skipped.out) == (0, b"0\n1\n2\n6\n7\n8\n")
    assert skipped.err.startswith("triglot: left out: t-0 offsets 3 to 5: ")


def test_records_deleted_in_the_midst_of_a_batch_are_not_printed(
    bootstrap: str, client: Cluster, topic: str
) -> None:
    filled(client, topic, 0, 6)
    host, _, port = bootstrap.rpartition(":")
    with Caller(host, int(port)) as caller:
        caller.delete_records(topic, 4)
    ran = typed("consume", topic, "--until-end", "--bootstrap", bootstrap)
    assert ran.out == b"4\n5\n"


def test_what_a_terminal_would_obey_is_shown_and_not_done() -> None:
    shown = shown_on_a_terminal("a\tä\x1b[2J\x07\n".encode() + b"\xff\n")
    assert shown == "a\tä\\x1b[2J\\x07\n\\xff\n".encode()


def test_wrong_credentials_are_one_line(bootstrap: str, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        "sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required "
        'username="a" password="b";\n'
    )
    file.chmod(0o600)
    for words in (("consume", "t"), ("produce", "t"), ("topics", "list")):
        said = typed(*words, "--command-config", str(file), "--bootstrap", bootstrap).refusal
        assert bootstrap in said
        assert "security.protocol" in said


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--commit",), "--commit wants a --group"),
        (("--json", "--format", "%s"), "--json is a format"),
        (("--from-start", "--from-end"), "not allowed with"),
        (("--until-end", "--until-offset", "3"), "not allowed with"),
        (("--from-offset", "-3"), "wanted a whole number from 0 on"),
        (("--from-time", "soon"), "wanted a time such as"),
    ],
)
def test_a_wrong_command_line_is_exit_code_2(words: tuple[str, ...], sentence: str) -> None:
    ran = typed("consume", "t", *words)
    assert ran.code == 2
    assert sentence in ran.err


def test_progress_is_told_on_standard_error_when_it_is_asked_for(
    bootstrap: str, client: Cluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tools.printing import Records

    monkeypatch.setattr(Records, "EVERY_S_ELSEWHERE", -1.0)
    filled(client, topic, 0, 3)
    ran = typed("consume", topic, "--until-end", "--progress", "--bootstrap", bootstrap)
    assert ran.out == b"0\n1\n2\n"
    assert ran.err.startswith("3 of 3 records, ")


def test_answers_are_one_json_object_for_each_line(
    bootstrap: str, client: Cluster, topic: str
) -> None:
    filled(client, topic, 0, 2)
    ran = typed("consume", topic, "--until-end", "--json", "--bootstrap", bootstrap)
    assert [json.loads(line)["offset"] for line in ran.out.splitlines()] == [0, 1]


def test_reading_needs_no_package_of_the_pipeline() -> None:
    program = (
        "import sys, tools.consume.actions, tools.produce.actions\n"
        "print({'numpy', 'pyarrow', 'pyspark', 'py4j'} & set(sys.modules))"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], cwd=CHECKOUT, capture_output=True, text=True, check=True
    )
    assert run.stdout == "set()\n"
