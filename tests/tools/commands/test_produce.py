"""`triglot produce` as a user types it, and what it says to what it cannot write."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from testing.proxy import FaultProxy
from tests.support.broker_process import CHECKOUT
from tests.support.interruptible import take_interrupts
from tests.support.typed_bytes import typed
from tools.errors import NotDone
from tools.escapes import unescaped
from tools.produce import lines
from tools.produce.partitioning import murmur2, partition_of
from tools.produce.rows import Given, rows_of_json

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.typed_bytes import Ran
    from tests.tools.commands.conftest import Doors

AGES = ["V08", "V09", "V010", "V011", "V21", "V41", "TODAY"]
WITH_HEADERS = ["V011", "V41"]


@pytest.fixture
def topic(bootstrap: str, new_name: Callable[[], str]) -> str:
    name = new_name()
    assert typed("topics", "create", name, "--bootstrap", bootstrap).code == 0
    return name


def consumed(bootstrap: str, topic: str) -> list[Any]:
    """What is in a topic, without what is the same in all tests."""
    words = ("consume", topic, "--until-end", "--json", "--bootstrap", bootstrap)
    return [
        {name: value for name, value in record.items() if name not in ("topic", "timestamp_ms")}
        for record in typed(*words).answers
    ]


def values(bootstrap: str, topic: str) -> list[str]:
    return [record["value"] for record in consumed(bootstrap, topic)]


def written(bootstrap: str, topic: str, file: Path, content: bytes, *words: str) -> Ran:
    file.write_bytes(content)
    return typed("produce", topic, str(file), *words, "--bootstrap", bootstrap)


@pytest.mark.parametrize(
    ("door", "codec"),
    [
        *((door, "none") for door in AGES),
        ("V08", "gzip"),
        ("V010", "lz4"),
        ("V011", "snappy"),
        ("V21", "zstd"),
    ],
)
def test_lines_are_records_at_brokers_of_every_age(
    door: str, codec: str, broker: Doors, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    content = b"first\n\nthird\r\nwithout an end"
    ran = written(broker.at(door), topic, tmp_path / "f", content, "--codec", codec, "--json")
    partitions = [{"partition": 0, "records": 4, "first_offset": 0, "last_offset": 3}]
    assert ran.answer == {"topic": topic, "records": 4, "partitions": partitions}
    there = broker.at(door)
    assert values(there, topic) == ["first", "", "third\r", "without an end"]


@pytest.mark.parametrize("door", WITH_HEADERS)
def test_keys_headers_and_nulls_are_written(
    door: str, broker: Doors, topic: str, tmp_path: Path
) -> None:
    there, file = broker.at(door), tmp_path / "f"
    words = ("--key-separator", r"\t", "--empty-is-null", "--header", "from=a=b", "--header", "e=")
    assert written(there, topic, file, b"k\tv\nk\t\n\tv\t\n", *words).code == 0
    headers = [{"name": "from", "value": "a=b"}, {"name": "e", "value": ""}]
    wanted = [("k", "v"), ("k", None), (None, "v\t")]
    assert consumed(there, topic) == [
        {"partition": 0, "offset": at, "key": key, "value": value, "headers": headers}
        for at, (key, value) in enumerate(wanted)
    ]


def test_headers_are_refused_where_there_are_none(
    broker: Doors, topic: str, tmp_path: Path
) -> None:
    said = written(broker.at("V010"), topic, tmp_path / "f", b"a", "--header", "x=y").refusal
    assert "takes no headers (Kafka 0.11 is the first)" in said


def test_a_codec_that_a_broker_does_not_know_is_refused(
    broker: Doors, topic: str, tmp_path: Path
) -> None:
    said = written(broker.at("V010"), topic, tmp_path / "f", b"a", "--codec", "zstd").refusal
    assert "zstd" in said
    assert "0 records written before" in said


def test_json_of_a_consumer_is_written_as_the_same_records(
    bootstrap: str, topic: str, new_name: Callable[[], str], tmp_path: Path
) -> None:
    file = tmp_path / "f"
    given = [
        {"key": "k", "value": "v", "timestamp_ms": 12, "headers": [{"name": "n", "value": None}]},
        {"key_base64": "/w==", "value_base64": "gA==", "timestamp_ms": 11},
        {"value": {"id": 7, "a": ["ä"]}, "partition": 0, "timestamp_ms": 10},
        {"key": "gone", "value": None, "timestamp_ms": -1},
    ]
    content = "\n".join(json.dumps(one) for one in given).encode()
    assert written(bootstrap, topic, file, content, "--input", "json").code == 0
    words = ("--until-end", "--json", "--bootstrap", bootstrap)
    first = typed("consume", topic, *words)
    assert [record.get("value", record.get("value_base64")) for record in first.answers] == [
        *("v", "gA=="),
        *('{"id": 7, "a": ["ä"]}', None),
    ]
    copy = new_name()
    assert typed("topics", "create", copy, "--bootstrap", bootstrap).code == 0
    assert written(bootstrap, copy, file, first.out, "--input", "json").code == 0
    second = typed("consume", copy, *words)
    assert second.out == first.out.replace(topic.encode(), copy.encode())


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b'{"key":', "is not JSON: Expecting value at character 8"),
        (b"[1]", "wanted an object with key, value, headers, partition, timestamp_ms"),
        (b'{"valu": 1}', "'valu' is not known"),
        (b'{"value_base64": "x"}', "'value_base64' is not base64"),
        (b'{"value_base64": 7}', "'value_base64' is not base64"),
        (b'{"partition": -1}', "'partition' is -1"),
        (b'{"partition": true}', "'partition' is true"),
        (b'{"timestamp_ms": "now"}', "'timestamp_ms' is \"now\""),
        (b'{"timestamp_ms": 1e40}', "'timestamp_ms' is 1e+40"),
        (b'{"headers": {"a": "b"}}', "'headers' is a number"),
        (b'{"headers": [7]}', "a header is an object with 'name'"),
        (b"\xff\xfe", "is not"),
        (b"[" * 100_000, "is nested too deeply"),
    ],
)
def test_a_line_that_is_no_record_is_told_after_those_before(
    line: bytes, why: str, tmp_path: Path
) -> None:
    file = tmp_path / "f"
    file.write_bytes(b'{"value": "good"}\n\n' + line + b'\n{"value": "not reached"}\n')
    given = Given(None, None, (), None, 5, empty_is_null=False)
    rows = rows_of_json([str(file)], given)
    assert next(rows) == [(None, (5, None, b"good", ()))]
    with pytest.raises(NotDone) as told:
        next(rows)
    assert str(told.value).startswith(f"line 3 of {file}")
    assert why in str(told.value)


def test_a_line_that_is_no_record_ends_it_and_those_before_are_written(
    bootstrap: str, topic: str, tmp_path: Path
) -> None:
    content = b'{"value": "good"}\n{"value":'
    said = written(bootstrap, topic, tmp_path / "f", content, "--input", "json").refusal
    assert said.endswith("character 10; 1 record written before\n")
    assert values(bootstrap, topic) == ["good"]


def test_a_line_without_the_separator_ends_it_after_those_before(
    bootstrap: str, topic: str, tmp_path: Path
) -> None:
    words = ("--key-separator", ": ")
    said = written(bootstrap, topic, tmp_path / "f", b"a: 1\nb:2\n", *words).refusal
    assert "line 2" in said
    assert "has no ': ' (--key-separator); 1 record written before" in said


def test_files_are_records_whatever_is_in_them(bootstrap: str, topic: str, tmp_path: Path) -> None:
    binary = bytes(range(256))
    (tmp_path / "a").write_bytes(binary)
    (tmp_path / "b").write_bytes(b"")
    files = [str(tmp_path / name) for name in "ab"]
    words = ("--input", "files", "--key", r"\xff", "--timestamp", "2026-01-31T12:00:00Z")
    assert typed("produce", topic, *files, *words, "--bootstrap", bootstrap).code == 0
    ran = typed(
        *("consume", topic, "--until-end", "--format", "%k|%T|%S|%s", "--bootstrap", bootstrap)
    )
    when = b"\xff|1769860800000|"
    assert ran.out == when + b"256|" + binary + when + b"0|"


def test_a_file_that_is_not_there_is_one_line(bootstrap: str, topic: str, tmp_path: Path) -> None:
    for kind in ("lines", "files"):
        words = ("produce", topic, str(tmp_path / "none"), "--input", kind)
        said = typed(*words, "--bootstrap", bootstrap).refusal
        assert f"{tmp_path / 'none'} can't be read: no such file or directory" in said


def test_a_topic_that_is_not_there_is_told_with_what_makes_it(bootstrap: str) -> None:
    said = typed("produce", "is-not-there", "--bootstrap", bootstrap).refusal
    assert f"there is no topic 'is-not-there' on {bootstrap}" in said
    assert "(triglot topics create is-not-there makes it)" in said


def test_a_record_that_is_too_large_is_refused_before_it_is_sent(
    bootstrap: str, topic: str, tmp_path: Path
) -> None:
    content = b"small\n" + b"x" * (8 << 20) + b"\nnot reached\n"
    said = written(bootstrap, topic, tmp_path / "f", content).refusal
    assert f"topic '{topic}' takes 1,048,588 (max.message.bytes)" in said
    assert "a record has 8,388," in said
    assert values(bootstrap, topic) == ["small"]


def test_a_line_without_an_end_is_refused(
    bootstrap: str, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "LINE_BYTES_MAX", 1 << 19)
    said = written(bootstrap, topic, tmp_path / "f", b"a\n" + bytes(1 << 20)).refusal
    assert "line 2 of" in said
    assert "has more than 524,288 bytes" in said
    assert values(bootstrap, topic) == ["a"]


def test_a_batch_that_is_too_large_for_its_topic_goes_in_parts(
    bootstrap: str, topic: str, tmp_path: Path
) -> None:
    words = ("--set", "max.message.bytes=20000", "--bootstrap", bootstrap)
    assert typed("topics", "alter", topic, *words).code == 0
    wanted = [f"{number:0200}" for number in range(1000)]
    content = "\n".join(wanted).encode()
    assert written(bootstrap, topic, tmp_path / "f", content).code == 0
    assert values(bootstrap, topic) == wanted
    said = written(bootstrap, topic, tmp_path / "f", b"y" * 30_000).refusal
    assert "MESSAGE_TOO_LARGE" in said
    assert f"a record has 30,000 bytes (max.message.bytes of topic '{topic}')" in said


def test_records_with_a_key_go_where_kafkas_producer_sends_them(
    bootstrap: str, new_name: Callable[[], str], tmp_path: Path
) -> None:
    name = new_name()
    words = ("--partitions", "5", "--bootstrap", bootstrap)
    assert typed("topics", "create", name, *words).code == 0
    keys = [f"key-{number}" for number in range(40)]
    content = "\n".join(f"{key}:" for key in keys).encode()
    assert written(bootstrap, name, tmp_path / "f", content, "--key-separator", ":").code == 0
    found = {record["key"]: record["partition"] for record in consumed(bootstrap, name)}
    assert found == {key: partition_of(key.encode(), 5) for key in keys}
    said = written(bootstrap, name, tmp_path / "f", b"a", "--partition", "5").refusal
    assert f"topic '{name}' has no partition 5, but 5 counted from 0" in said


@pytest.mark.parametrize(
    ("key", "wanted"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_hashes_of_keys_are_those_of_kafkas_own_tests(key: bytes, wanted: int) -> None:
    assert murmur2(key) == wanted & 0xFFFF_FFFF


def test_records_without_a_key_fill_one_partition_after_the_other(
    bootstrap: str, new_name: Callable[[], str], tmp_path: Path
) -> None:
    name = new_name()
    words = ("--partitions", "3", "--bootstrap", bootstrap)
    assert typed("topics", "create", name, *words).code == 0
    ran = written(bootstrap, name, tmp_path / "f", (b"z" * 999 + b"\n") * 2000, "--json")
    counts = [one["records"] for one in ran.answer["partitions"]]
    assert len(counts) == 3
    assert sum(counts) == 2000


def test_what_stands_on_standard_input_is_written_when_no_more_is_waiting(
    bootstrap: str, topic: str
) -> None:
    words = [sys.executable, "-m", "tools", "produce", topic, "--bootstrap", bootstrap]
    reading = ("consume", topic, "--count", "1", "--bootstrap", bootstrap)
    with subprocess.Popen(
        words, cwd=CHECKOUT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as running:
        assert running.stdin is not None
        running.stdin.write("at once\n")
        running.stdin.flush()
        # It ends because the record is there while standard input is still open.
        assert typed(*reading).out == b"at once\n"
        out, _ = running.communicate("and the rest")
    assert running.returncode == 0
    assert out == f"{topic}-0: 2 records, offsets 0 to 1\n2 records written\n"


@pytest.mark.parametrize("door", ["V011", "TODAY"])
def test_an_answer_that_is_lost_doubles_no_line(
    broker: Doors, topic: str, tmp_path: Path, door: str
) -> None:
    with FaultProxy(broker.at(door)) as proxy:
        fault = proxy.faults.drop_answer("Produce")
        words = ("--timeout", "60")
        ran = written(proxy.bootstrap, topic, tmp_path / "lines", b"one\ntwo\n", *words)
        assert fault.fired == 1
    assert ran.out == f"{topic}-0: 2 records, offsets 0 to 1\n2 records written\n".encode()
    assert values(broker.at(door), topic) == ["one", "two"]


def test_an_answer_that_is_lost_ends_it_where_the_broker_could_double_lines(
    broker: Doors, topic: str, tmp_path: Path
) -> None:
    with FaultProxy(broker.at("V010")) as proxy:
        proxy.faults.drop_answer("Produce")
        ran = written(proxy.bootstrap, topic, tmp_path / "lines", b"one\ntwo\n")
    assert "it is not known what was stored" in ran.refusal
    assert values(broker.at("V010"), topic) == ["one", "two"]


def test_an_interruption_says_how_much_is_written(bootstrap: str, topic: str) -> None:
    words = [sys.executable, "-m", "tools", "produce", topic, "--bootstrap", bootstrap]
    with subprocess.Popen(
        words,
        cwd=CHECKOUT,
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=take_interrupts,
    ) as running:
        assert running.stdin is not None
        running.stdin.write("one\ntwo\n")
        running.stdin.flush()
        reading = ("consume", topic, "--count", "2", "--bootstrap", bootstrap)
        assert typed(*reading).out == b"one\ntwo\n"
        # It may still be in the answer to its last batch, which it waits for then.
        os.kill(running.pid, signal.SIGINT)
        assert running.stderr is not None
        said = running.stderr.read()
    assert running.returncode == 1
    assert said.startswith("triglot: interrupted; ")
    assert said.endswith("records written before\n")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--input", "files"), "--input files wants the names of files"),
        (("--input", "json", "--key-separator", ":"), "are about lines"),
        (("--key-separator", ""), "--key-separator is empty"),
        (("--key", "k", "--key-separator", ":"), "not allowed with"),
        (("--header", "x"), "wanted NAME=VALUE, found 'x'"),
        (("--codec", "rar"), "invalid choice"),
        (("--key", r"\q"), r"'\q' is no escape"),
    ],
)
def test_a_wrong_command_line_is_exit_code_2(words: tuple[str, ...], sentence: str) -> None:
    ran = typed("produce", "t", *words)
    assert ran.code == 2
    assert sentence in ran.err


def test_escapes_stand_for_the_bytes_that_they_name() -> None:
    assert unescaped(r"a\tb\n\\\0\xfFä") == b"a\tb\n\\\0\xff\xc3\xa4"
    with pytest.raises(ValueError, match="stands at the end"):
        unescaped("a\\")
