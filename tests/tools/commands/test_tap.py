"""`triglot tap`: what clients and brokers say is told in words, kept, and said again."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from broker.faults.proxy.frames import head_of
from client.cluster import Cluster, TopicPartition
from protocol.errors import ErrorCode
from protocol.messages.fetch import FetchRequest
from protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from protocol.messages.produce import ProduceRequest
from protocol.records.builder import build_batch
from protocol.records.legacy import build_messages
from protocol.registry import APIS
from tests.protocol.declarations import sample
from tests.support.broker_process import CHECKOUT
from tests.support.proxied import answer_frame, request_frame
from tests.support.server_process import free_port
from tests.support.tap_process import TapProcess
from tests.support.typed_bytes import typed
from tools.tap.conversation import ANSWER, REQUEST, Entry
from tools.tap.overhearing import Filter, Overhearing
from tools.tap.words import Words, has_secrets, records_text

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.tools.commands.conftest import Doors

HEARTBEAT, SASL_AUTHENTICATE = 12, 36


def overheard(*, wanted: Filter | None = None) -> tuple[Overhearing, list[Entry]]:
    """An observer whose clock goes on by a ms with each look, and what it tells."""
    told: list[Entry] = []
    ticks = itertools.count()
    observer = Overhearing(
        told.append,
        words=Words(is_full=False),
        wanted=wanted or Filter(),
        now_ms=lambda: 0,
        monotonic_s=lambda: next(ticks) / 1000,
    )
    return observer, told


def test_a_conversation_is_told_kept_and_held_again(
    bootstrap: str, new_name: Callable[[], str], tmp_path: Path
) -> None:
    name, saved, lines = new_name(), tmp_path / "talk", tmp_path / "lines"
    lines.write_bytes(b"one\ntwo\n")
    assert typed("topics", "create", name, "--bootstrap", bootstrap).code == 0
    tap = TapProcess(bootstrap, arguments=("--save", str(saved)))
    with tap:
        run = tap.run
        assert run is not None
        through = ("--bootstrap", tap.bootstrap)
        with Cluster(tap.bootstrap) as client:
            client.produce(TopicPartition(name, 0), [build_batch([(0, None, b"zero", [])])])
        assert typed("produce", name, str(lines), "--codec", "lz4", *through).code == 0
        assert typed("consume", name, "--until-end", *through).out == b"zero\none\ntwo\n"
    told = [json.loads(line) for line in run.output().splitlines()[1:]]

    said = {(entry["what"], entry.get("api")): entry for entry in told}
    produced = said[REQUEST, "Produce"]
    assert produced["client"] == "triglot-produce"
    assert f"topic_id: {name}" in produced["text"]
    assert "records: <2 records, lz4, " in produced["text"]
    assert "error_code: NONE, base_offset: 1" in said[ANSWER, "Produce"]["text"]
    assert said[ANSWER, "Produce"]["took_ms"] > 0
    assert " lz4, " in said[ANSWER, "Fetch"]["text"]
    assert "{api_key: Produce, min_version: 0" in said[ANSWER, "ApiVersions"]["text"]
    assert {entry["what"] for entry in told} == {"opened", REQUEST, ANSWER, "closed"}
    assert not any("frame" in entry for entry in told)

    shown = typed("tap", "show", str(saved), "--json").answers
    assert shown == told

    held = typed("tap", "replay", str(saved), "--json", "--bootstrap", bootstrap).answers
    asked = [entry for entry in told if entry["what"] == REQUEST]
    assert [(one["api"], one["version"]) for one in held] == [
        (entry["api"], entry["version"]) for entry in asked
    ]
    plain, idempotent = [one for one in held if one["api"] == "Produce"]
    assert "base_offset: 0" in plain["then"]
    assert "base_offset: 3" in plain["now"]
    assert "base_offset: 1" in idempotent["then"]
    assert idempotent["same"], "the broker knows these records"
    assert not plain["same"]
    assert all(one["same"] for one in held if one["api"] == "Metadata")
    counted = typed("consume", name, "--until-end", "--bootstrap", bootstrap).out
    assert counted == b"zero\none\ntwo\nzero\n"


def test_a_reader_that_has_gone_ends_it_without_a_word(tmp_path: Path) -> None:
    saved = tmp_path / "talk"
    saved.write_text(Entry("opened", 0, 1, text="by somebody").as_json(with_frame=True) + "\n")
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "wb") as pipe:
        run = subprocess.run(
            [sys.executable, "-m", "tools", "tap", "show", str(saved)],
            cwd=CHECKOUT,
            env=os.environ | {"PYTHONUNBUFFERED": ""},
            stdout=pipe,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert (run.returncode, run.stderr) == (1, b"")


def test_what_another_broker_does_not_offer_is_told_and_not_sent(
    broker: Doors, bootstrap: str, new_name: Callable[[], str], tmp_path: Path
) -> None:
    name, saved = new_name(), tmp_path / "talk"
    assert typed("topics", "create", name, "--bootstrap", bootstrap).code == 0
    asked = Entry(REQUEST, 0, 1, client="c")
    old = request_frame(0, 0, ProduceRequest(acks=1, timeout_ms=1, topic_data=[]).encode(0))
    silent = request_frame(0, 9, ProduceRequest(acks=0, timeout_ms=1, topic_data=[]).encode(9))
    entries = [
        asked._replace(api="Produce", version=0, frame=old),
        asked._replace(api="Produce", version=9, frame=silent),
        asked._replace(api="SaslHandshake", version=1, frame=request_frame(17, 1, b"\0\5PLAIN")),
        asked._replace(api="Produce", version=9, frame=b"\0\0\0\x09\0\0\0\1\0\1c\0\1"),
    ]
    saved.write_text("".join(entry.as_json(with_frame=True) + "\n" for entry in entries))
    ran = typed("tap", "replay", str(saved), "--bootstrap", broker.at("V41"))
    assert ran.code == 0
    lines = ran.out.decode().splitlines()
    assert lines[0].endswith("does not offer Produce v0")
    assert lines[1].endswith("it wants no answer (acks=0)")
    assert lines[2].endswith("logins are not sent again")
    assert "it is not understood" in lines[3]
    assert lines[4] == "0 requests sent again, 0 answers as before, 0 other, 4 not sent"


@pytest.mark.parametrize("key", sorted(APIS))
def test_every_version_of_every_api_is_told_in_words(key: int) -> None:
    api, words = APIS[key], Words(is_full=True)
    for version in range(api.min_version, api.max_version + 1):
        request, answer = sample(api.request, version, 1), sample(api.response, version, 1)
        frame = request_frame(key, version, request.encode(version))
        head = head_of(frame)
        assert head is not None
        assert (head.api.name, head.version, head.client_id) == (api.name, version, "c")
        told = words.request(head, frame)
        heard = words.answer(head, answer_frame(key, version, answer.encode(version)))
        for text, kind in ((told, api.request), (heard, api.response)):
            fields = [field.name for field in kind._fields if field.versions.holds(version)]
            assert text.startswith("{")
            assert all(f"{name}: " in text for name in fields)
        if len(frame) > head.body_at:
            assert "that are not understood" in words.request(head, frame[:-1])


def test_a_request_and_its_answer_are_told_with_the_time_between_them() -> None:
    observer, told = overheard()
    observer.opened("10.0.0.1:5", "10.0.0.2:9092")
    request = HeartbeatRequest(group_id="g", generation_id=3, member_id="m")
    frame = request_frame(HEARTBEAT, 4, request.encode(4))
    head = head_of(frame)
    observer.asked("10.0.0.1:5", head, frame)
    code = ErrorCode.REBALANCE_IN_PROGRESS
    answer = HeartbeatResponse(error_code=code).encode(4)
    observer.answered("10.0.0.1:5", head, answer_frame(HEARTBEAT, 4, answer))
    observer.closed("10.0.0.1:5")
    assert [entry.line()[13:] for entry in told] == [
        "#1 opened by 10.0.0.1:5, led to 10.0.0.2:9092",
        "#1 c > Heartbeat v4 "
        "{group_id: g, generation_id: 3, member_id: m, group_instance_id: null}",
        "#1 c < Heartbeat v4 after 1.0 ms {throttle_time_ms: 0, error_code: REBALANCE_IN_PROGRESS}",
        "#1 closed",
    ]


def test_only_what_is_wanted_is_told() -> None:
    wanted = Filter(("bill*", "c"), ("Heartbeat",))
    observer, told = overheard(wanted=wanted)
    observer.opened("a:1", "b:1")
    heartbeat = HeartbeatRequest(group_id="g", generation_id=3, member_id="m").encode(0)
    fetch = FetchRequest(max_wait_ms=0, min_bytes=0, topics=[]).encode(4)
    for frame in (request_frame(HEARTBEAT, 0, heartbeat), request_frame(1, 4, fetch)):
        observer.asked("a:1", head_of(frame), frame)
    observer.asked("a:1", None, b"token")
    observer.closed("a:1")
    assert [entry.api for entry in told] == ["Heartbeat"]
    assert not Filter(("bill*",)).lets(head_of(request_frame(1, 4, fetch)))


def test_frames_with_secrets_are_neither_told_nor_kept() -> None:
    observer, told = overheard()
    observer.opened("a:1", "b:1")
    frame = request_frame(SASL_AUTHENTICATE, 0, b"\0\0\0\6secret")
    observer.asked("a:1", head_of(frame), frame)
    observer.asked("a:1", None, b"\0user\0secret")
    for entry in told[1:]:
        assert "secret" not in entry.text
        assert entry.frame is None
    of_secrets = {api.name for api in APIS.values() if has_secrets(api)}
    assert of_secrets >= {"SaslAuthenticate", "AlterUserScramCredentials", "CreateDelegationToken"}
    assert not {"Produce", "Fetch", "Metadata", "JoinGroup"} & of_secrets


def test_records_are_told_by_number_format_and_codec() -> None:
    two = build_batch([(0, None, b"a", ()), (0, None, b"b", ())], codec=4)
    marker = build_batch([(0, b"\0\0\0\1", b"\0" * 6, ())], control=True, transactional=True)
    old = build_messages([(0, None, b"a", ())], magic=1)
    assert records_text(memoryview(two)) == f"<2 records, zstd, {len(two)} bytes>"
    several = two + marker + old
    assert records_text(memoryview(several)) == (
        "<4 records in 3 entries, zstd; marker of a transaction, none; format 1, none, "
        f"{len(several)} bytes>"
    )
    for broken in (b"", b"\0" * 40, two[:30], b"\0" * 16 + b"\7"):
        assert records_text(memoryview(broken)) == f"<{len(broken)} bytes>"


@pytest.mark.parametrize(
    "line",
    ["{", "7", "[]", "{}", '{"what": "x", "time_ms": 0, "connection": 1}',
     '{"what": "request", "time_ms": "a", "connection": 1}',
     '{"what": "request", "time_ms": 0, "connection": 1, "frame": "?"}',
     '{"what": "request", "time_ms": 0, "connection": 1, "frame": 7}'],
)  # fmt: skip
def test_a_file_that_is_no_conversation_is_one_line(line: str, tmp_path: Path) -> None:
    good = Entry("opened", 0, 1).as_json(with_frame=True)
    (tmp_path / "f").write_text(f"{good}\n{line}\n")
    said = typed("tap", "show", str(tmp_path / "f")).err
    assert said == (
        f"triglot: line 2 of {tmp_path / 'f'} is none of a saved conversation (tap --save)\n"
    )


def test_what_cannot_be_begun_is_one_line(tmp_path: Path) -> None:
    there = tmp_path / "there"
    there.write_text("mine")
    nobody = f"127.0.0.1:{free_port()}"
    listen = ("tap", "listen", "--in-front-of", nobody)
    assert "file exists" in typed(*listen, "--save", str(there)).refusal
    assert there.read_text() == "mine"
    said = typed(*listen, "--api", "Produse").refusal
    assert "there is no API 'Produse', did you mean Produce?" in said
    assert "can't be read" in typed("tap", "show", str(tmp_path / "none")).refusal
    said = typed(*listen, "--advertise", "here:1").refusal
    assert "--advertise with a port wants one in --listen" in said
