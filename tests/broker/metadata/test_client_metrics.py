"""Metrics of clients: subscriptions, intervals, what is kept; without sockets, in our own time."""

from __future__ import annotations

import zlib
from pathlib import Path

import pytest

from broker.metadata import client_metrics
from broker.metadata.client_metrics import ClientFacts, ClientMetrics
from broker.metadata.client_metrics_page import page
from protocol.errors import ErrorCode, KafkaError

SUBSCRIPTIONS = 16
JAVA = (Path(__file__).parents[2] / "protocol" / "otlp" / "java-3.9.1.zst").read_bytes()
NONE, GZIP, ZSTD = 0, 1, 4
GZIP_WRAPPER = 31


def facts(instance_id: bytes) -> ClientFacts:
    return ClientFacts(instance_id.hex(), "till", "apache-kafka-java", "3.9.1", "127.0.0.1", "9")


class Told:
    """The state, and the clock it is asked at."""

    def __init__(self, **subscriptions: dict[str, str]) -> None:
        self.stored = {(SUBSCRIPTIONS, name): given for name, given in subscriptions.items()}
        self.now_ms = 1_000_000
        self._ids = iter(range(1, 100_000))
        self.state = ClientMetrics(
            lambda: self.stored,
            SUBSCRIPTIONS,
            lambda: next(self._ids).to_bytes(16),
            max_bytes=100_000,
        )

    def get(self, instance_id: bytes = bytes(16)) -> tuple[bytes, client_metrics.Subscription]:
        return self.state.subscribe(instance_id, facts, self.now_ms)

    def push(
        self,
        instance_id: bytes,
        subscription_id: int,
        payload: bytes = b"",
        *,
        codec: int = NONE,
        terminating: bool = False,
    ) -> int:
        """The code."""
        try:
            self.state.take(
                instance_id,
                facts,
                subscription_id,
                codec,
                payload,
                self.now_ms,
                terminating=terminating,
            )
        except KafkaError as error:
            return error.code
        return 0

    def refused_get(self, instance_id: bytes) -> int:
        with pytest.raises(KafkaError) as refused:
            self.get(instance_id)
        return refused.value.code


def test_without_a_subscription_a_client_is_asked_for_nothing() -> None:
    told = Told()
    instance_id, asked = told.get()

    assert instance_id == (1).to_bytes(16)
    assert (asked.metrics, asked.push_interval_ms) == ((), 300_000)


def test_all_subscriptions_that_match_hold_together_at_the_shortest_interval() -> None:
    told = Told(
        a={"metrics": "x.,y.", "interval.ms": "900"},
        b={"metrics": "y.,z.", "interval.ms": "400", "match": "client_id=ti.*"},
        c={"metrics": "*", "interval.ms": "100", "match": "client_id=ti"},
        d={"metrics": "*", "match": "client_id=till,client_software_version=4.*"},
        of_kafka={"metrics": "*", "interval.ms": "99"},
    )

    _, asked = told.get()

    assert (asked.metrics, asked.push_interval_ms) == (("x.", "y.", "z."), 400)


def test_one_star_is_all_metrics() -> None:
    told = Told(a={"metrics": "x."}, b={"metrics": "y.,*"})
    assert told.get()[1].metrics == ("*",)


def test_a_changed_subscription_has_another_id_and_is_asked_for_at_once() -> None:
    told = Told(a={"metrics": "x."})
    instance_id, asked = told.get()
    told.stored[SUBSCRIPTIONS, "a"] = {"metrics": "y."}
    told.state.subscriptions_changed()

    assert told.push(instance_id, asked.subscription_id) == ErrorCode.UNKNOWN_SUBSCRIPTION_ID

    _, other = told.get(instance_id)
    assert (other.metrics, other.subscription_id != asked.subscription_id) == (("y.",), True)


def test_a_client_pushes_once_at_once_and_then_at_its_interval() -> None:
    told = Told(a={"interval.ms": "400"})
    instance_id, asked = told.get()
    assert told.refused_get(instance_id) == ErrorCode.THROTTLING_QUOTA_EXCEEDED

    assert told.push(instance_id, asked.subscription_id) == 0
    throttled = told.push(instance_id, asked.subscription_id)
    told.now_ms += 399
    still = told.push(instance_id, asked.subscription_id)
    told.now_ms += 1

    assert throttled == still == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert told.push(instance_id, asked.subscription_id) == 0


@pytest.mark.parametrize(
    ("subscription", "codec", "code"),
    [
        (1, NONE, ErrorCode.UNKNOWN_SUBSCRIPTION_ID),
        (0, 9, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    ],
)
def test_who_was_told_that_its_subscription_or_codec_is_unknown_may_ask_again_at_once(
    subscription: int, codec: int, code: ErrorCode
) -> None:
    told = Told()
    instance_id, asked = told.get()
    told.now_ms += 300_000

    refused = told.push(instance_id, asked.subscription_id + subscription, codec=codec)
    _, again = told.get(instance_id)

    assert refused == code
    assert told.push(instance_id, again.subscription_id) == 0


def test_the_last_push_comes_at_any_time_and_is_the_last() -> None:
    told = Told()
    instance_id, asked = told.get()
    told.push(instance_id, asked.subscription_id)

    assert told.push(instance_id, asked.subscription_id, terminating=True) == 0
    told.now_ms += 300_000
    assert told.push(instance_id, asked.subscription_id) == ErrorCode.INVALID_REQUEST


def test_a_push_without_an_id_or_too_large_or_not_to_be_opened_is_refused() -> None:
    told = Told(a={"interval.ms": "100"})
    assert told.push(bytes(16), 0) == ErrorCode.INVALID_REQUEST
    instance_id, asked = told.get()
    for payload, codec, code in (
        (b"x" * 100_001, NONE, ErrorCode.TELEMETRY_TOO_LARGE),
        (b"x" * 100, GZIP, ErrorCode.INVALID_RECORD),
        (gzipped(bytes(20_000_000)), GZIP, ErrorCode.INVALID_RECORD),
        (b"x" * 100_000, NONE, 0),
    ):
        assert told.push(instance_id, asked.subscription_id, payload, codec=codec) == code
        told.now_ms += 100
    assert told.state.kept_bytes == 100_000


def gzipped(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=GZIP_WRAPPER)
    return packer.compress(data) + packer.flush()


def test_of_more_clients_than_are_remembered_the_most_silent_go(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client_metrics, "CLIENTS_MAX", 3)
    told = Told(a={"interval.ms": "100"})
    clients = [told.get() for _ in range(3)]
    told.now_ms += 100
    told.push(clients[0][0], clients[0][1].subscription_id, b"first")
    told.push(clients[1][0], clients[1][1].subscription_id, b"second")

    clients += [told.get() for _ in range(2)]

    assert len(told.state) == 3
    assert [push.payload for push in told.state.last_pushes(told.now_ms)] == [b"second"]
    assert told.state.kept_bytes == len(b"second")


def test_of_more_bytes_than_are_kept_the_oldest_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_metrics, "PAYLOAD_BYTES_MAX", 25)
    told = Told(a={"interval.ms": "100"})
    for letter in b"abc":
        instance_id, asked = told.get()
        told.push(instance_id, asked.subscription_id, bytes([letter]) * 10)

    assert [push.payload[:1] for push in told.state.last_pushes(told.now_ms)] == [b"b", b"c"]
    assert told.state.kept_bytes == 20


@pytest.mark.parametrize(("interval_ms", "shown_ms"), [(100, 60_000), (30_000, 90_000)])
def test_a_client_that_is_silent_for_three_intervals_and_a_minute_is_no_longer_shown(
    interval_ms: int, shown_ms: int
) -> None:
    told = Told(a={"interval.ms": str(interval_ms)})
    instance_id, asked = told.get()
    told.push(instance_id, asked.subscription_id, b"x")

    assert len(told.state.last_pushes(told.now_ms + shown_ms)) == 1
    assert told.state.last_pushes(told.now_ms + shown_ms + 1) == []


def test_the_page_shows_what_was_pushed_by_name_and_client() -> None:
    told = Told(a={"interval.ms": "100"})
    for payload in (JAVA, b"\x00\x07"):
        instance_id, asked = told.get()
        code = told.push(
            instance_id, asked.subscription_id, payload, codec=ZSTD if payload == JAVA else 0
        )
        assert code == 0

    lines = page(told.state.last_pushes(told.now_ms)).splitlines()

    who = (
        'client_instance_id="00000000000000000000000000000001",client_id="till",'
        'client_software_name="apache-kafka-java",client_software_version="3.9.1"'
    )
    name = "org_apache_kafka_producer"
    at = lines.index(f"# TYPE {name}_record_send_total counter")
    assert lines[at + 1] == f"{name}_record_send_total{{{who}}} 16.0"
    assert f'{name}_node_request_latency_max{{{who},node_id="node--1"}} NaN' in lines
    assert lines[-1].startswith("# 00000000000000000000000000000002 sent what is no metrics:")


def test_a_client_cannot_write_lines_of_its_own_or_pass_for_another() -> None:
    def field(number: int, content: bytes) -> bytes:
        return bytes([number << 3 | 2, len(content)]) + content

    attributes = [(b"client_id", b"vault"), (b"a b", b'x"} 1\n# \\')]
    point = field(1, b"\x21" + bytes(8) + b"".join(
        field(7, field(1, key) + field(2, field(1, value))) for key, value in attributes
    ))  # fmt: skip
    metric = field(1, b"1 evil\nname") + field(5, point)
    told = Told()
    instance_id, asked = told.get()
    told.push(instance_id, asked.subscription_id, field(1, field(2, field(2, metric))))

    kind, row = page(told.state.last_pushes(told.now_ms)).splitlines()

    assert kind == "# TYPE _1_evil_name gauge"
    assert row.endswith(',a_b="x\\"} 1\\n# \\\\"} 0.0')
    assert 'client_id="till"' in row
    assert "vault" not in row
