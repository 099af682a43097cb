"""The proxy between scripts of a client and of a broker: addresses, faults, ends of connections."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from broker import logs
from broker.faults.proxy.brokers import Upstream
from broker.faults.proxy.frames import FRAME_BYTES_MAX
from broker.faults.proxy.server import Proxy
from protocol.errors import ErrorCode
from protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from protocol.messages.fetch import FetchRequest, FetchResponse
from protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from protocol.messages.metadata import MetadataRequest, MetadataResponse
from protocol.messages.produce import ProduceRequest, ProduceResponse
from protocol.registry import APIS
from tests.support.caller import by_partition
from tests.support.proxied import (
    LOOPBACK,
    Proxied,
    ScriptedUpstream,
    answer_frame,
    request_frame,
)

if TYPE_CHECKING:
    from protocol.schema import Message

PRODUCE, FETCH, METADATA, HEARTBEAT, API_VERSIONS = 0, 1, 3, 12, 18
ERROR = ErrorCode.NOT_LEADER_OR_FOLLOWER


def answers_of(upstream: ScriptedUpstream, version: int, *answers: Message) -> None:
    """Have the broker give these answers, one after the other."""
    left = list(answers)

    def answer(frame: bytes) -> bytes:
        message = left.pop(0)
        correlation_id = int.from_bytes(frame[4:8])
        body = message.encode(version)
        return answer_frame(type(message).key, version, body, correlation_id=correlation_id)

    upstream.answers = answer


def metadata_of(*brokers: MetadataResponse.Broker, topic_id: bytes = b"i" * 16) -> MetadataResponse:
    topic = MetadataResponse.Topic(error_code=0, name="orders", topic_id=topic_id, partitions=[])
    return MetadataResponse(brokers=list(brokers), topics=[topic])


async def test_each_broker_of_a_cluster_has_a_port_that_leads_to_it(proxied: Proxied) -> None:
    other = ScriptedUpstream()
    await other.open()
    brokers = [
        MetadataResponse.Broker(node_id=node_id, host=LOOPBACK, port=port)
        for node_id, port in ((1, proxied.upstream.port), (2, other.port))
    ]
    answers_of(proxied.upstream, 12, metadata_of(*brokers), metadata_of(*brokers))
    client = await proxied.connect()

    told, again = [await client.call(MetadataRequest(topics=None), 12) for _ in range(2)]

    assert told == again
    first, second = told.brokers
    assert (first.node_id, first.port) == (1, proxied.port)
    assert second.port not in (other.port, proxied.port, proxied.upstream.port)
    token = b"to the second"
    await (await proxied.connect(second.port)).ask(token)
    assert other.asked == [token]
    other.close()


async def test_versions_that_are_not_known_here_are_not_told(proxied: Proxied) -> None:
    told = ApiVersionsResponse.ApiVersion
    answers_of(
        proxied.upstream,
        3,
        ApiVersionsResponse(
            error_code=0,
            api_keys=[
                told(api_key=PRODUCE, min_version=0, max_version=99),
                told(api_key=4, min_version=0, max_version=7),
                told(api_key=HEARTBEAT, min_version=0, max_version=2),
            ],
        ),
    )
    answer = await (await proxied.connect()).call(ApiVersionsRequest(), 3)

    found = [(one.api_key, one.min_version, one.max_version) for one in answer.api_keys]
    assert found == [(PRODUCE, 0, APIS[PRODUCE].max_version), (HEARTBEAT, 0, 2)]


async def test_a_broker_that_refuses_a_version_of_api_versions_is_understood(
    proxied: Proxied,
) -> None:
    told = ApiVersionsResponse.ApiVersion(api_key=18, min_version=0, max_version=2)
    refused = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[told])
    proxied.upstream.answers = lambda frame: frame[4:8] + refused.encode(0)

    asked = request_frame(API_VERSIONS, 4, ApiVersionsRequest().encode(4))

    assert await (await proxied.connect()).ask(asked) == asked[4:8] + refused.encode(0)


def produce(*partitions: int, acks: int = -1) -> ProduceRequest:
    topic = ProduceRequest.Topic
    sets = [topic.Partition(index=index, records=memoryview(b"records")) for index in partitions]
    return ProduceRequest(
        acks=acks, timeout_ms=1000, topic_data=[topic(name="orders", partition_data=sets)]
    )


def produced(*partitions: int) -> ProduceResponse:
    topic = ProduceResponse.Topic
    answered = [topic.Partition(index=one, error_code=0, base_offset=7) for one in partitions]
    return ProduceResponse(responses=[topic(name="orders", partition_responses=answered)])


async def test_an_error_is_answered_without_asking_the_broker(proxied: Proxied) -> None:
    proxied.proxy.engine.add({"api": "Produce", "error": ERROR.name})
    answers_of(proxied.upstream, 8, produced(0))
    client = await proxied.connect()

    first, second = [await client.call(produce(0), 8) for _ in range(2)]

    assert first.responses[0].partition_responses[0].error_code == ERROR
    assert second.responses[0].partition_responses[0].base_offset == 7
    assert len(proxied.upstream.asked) == 1


async def test_an_error_of_one_partition_leaves_the_others_to_the_broker(proxied: Proxied) -> None:
    proxied.proxy.engine.add({"api": "Produce", "partition": 1, "error": ERROR.name})
    answers_of(proxied.upstream, 8, produced(0, 2))

    answer = await (await proxied.connect()).call(produce(0, 1, 2), 8)

    codes = {one.index: one.error_code for one in answer.responses[0].partition_responses}
    assert codes == {0: 0, 1: ERROR, 2: 0}
    assert proxied.upstream.asked == [request_frame(PRODUCE, 8, produce(0, 2).encode(8))]


@pytest.mark.parametrize(
    ("fault", "reaches"),
    [
        ({"error": ERROR.name}, False),
        ({"close": "before"}, False),
        ({"close": "after"}, True),
    ],
)
async def test_a_producer_that_wants_no_answer_loses_its_connection(
    proxied: Proxied, fault: dict[str, Any], reaches: bool
) -> None:
    proxied.proxy.engine.add({"api": "Produce", **fault})
    proxied.upstream.answers = lambda frame: None

    assert (
        await (await proxied.connect()).ask(request_frame(PRODUCE, 8, produce(0, acks=0).encode(8)))
        is None
    )

    await proxied.upstream.until(lambda: proxied.upstream.lost)
    assert bool(proxied.upstream.asked) == reaches


async def test_a_producer_that_wants_no_answer_is_followed_by_others(proxied: Proxied) -> None:
    client = await proxied.connect()
    proxied.upstream.answers = lambda frame: None
    client.write(request_frame(PRODUCE, 8, produce(0, acks=0).encode(8)))
    await proxied.upstream.until(lambda: proxied.upstream.asked)
    answers_of(proxied.upstream, 4, HeartbeatResponse(error_code=0))

    answer = await client.call(HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 4)

    assert answer.error_code == 0


async def test_what_a_client_sent_before_it_closed_reaches_the_broker(proxied: Proxied) -> None:
    client = await proxied.connect()
    proxied.upstream.answers = lambda frame: None
    for _ in range(100):
        client.write(request_frame(PRODUCE, 8, produce(0, acks=0).encode(8)))
    client.close()

    await proxied.upstream.until(lambda: proxied.upstream.lost)
    assert len(proxied.upstream.asked) == 100


async def test_answers_come_in_the_order_of_the_requests(proxied: Proxied) -> None:
    proxied.proxy.engine.add({"api": "Produce", "on_call": 2, "error": ERROR.name})
    answers_of(proxied.upstream, 8, produced(0), produced(0))
    client = await proxied.connect()

    for number in (1, 2, 3):
        client.write(request_frame(PRODUCE, 8, produce(0).encode(8), correlation_id=number))
    answers = [await client.read() for _ in range(3)]

    assert [int.from_bytes(one[:4]) for one in answers if one is not None] == [1, 2, 3]


async def test_an_answer_finds_its_request_where_the_broker_passes_one_over(
    proxied: Proxied,
) -> None:
    """As Kafka 0.9 does with ApiVersions."""
    told = metadata_of(MetadataResponse.Broker(node_id=1, host="kafka", port=1))
    proxied.upstream.answers = lambda frame: (
        None
        if frame[:2] == API_VERSIONS.to_bytes(2)
        else answer_frame(METADATA, 0, told.encode(0), correlation_id=2)
    )
    client = await proxied.connect()
    client.write(request_frame(API_VERSIONS, 0, b"", correlation_id=1))
    client.write(request_frame(METADATA, 0, bytes(4), correlation_id=2))

    came = await client.read()

    assert came is not None
    (broker,) = MetadataResponse.decode(0, came[4:]).brokers
    assert broker.host == LOOPBACK


async def test_a_lost_answer_is_one_of_a_request_that_took_effect(proxied: Proxied) -> None:
    proxied.proxy.engine.add({"api": "Produce", "close": "after", "on_call": 2})
    answers_of(proxied.upstream, 8, produced(0), produced(0))
    client = await proxied.connect()

    for _ in range(2):
        client.write(request_frame(PRODUCE, 8, produce(0).encode(8)))

    assert await client.read() is not None
    assert await client.read() is None
    assert len(proxied.upstream.asked) == 2


async def test_what_is_never_answered_holds_its_connection_open(proxied: Proxied) -> None:
    fault = proxied.proxy.engine.add({"api": "Produce", "never_answer": True})
    answers_of(proxied.upstream, 8, produced(0), produced(0))
    client, other = await proxied.connect(), await proxied.connect()

    for _ in range(2):
        client.write(request_frame(PRODUCE, 8, produce(0).encode(8)))
    await proxied.upstream.until(lambda: fault.fired)
    await other.call(produce(0), 8)

    assert len(proxied.upstream.asked) == 2, "the next request of the connection is not started"
    client.close()
    await proxied.upstream.until(lambda: proxied.upstream.lost)


async def test_a_throttled_answer_says_so_and_is_otherwise_the_brokers(proxied: Proxied) -> None:
    proxied.proxy.engine.add({"api": "Produce", "throttle_ms": 1})
    answers_of(proxied.upstream, 8, produced(0), produced(0))
    client = await proxied.connect()

    first, second = [await client.call(produce(0), 8) for _ in range(2)]

    assert (first.throttle_time_ms, second.throttle_time_ms) == (1, 0)
    assert first.responses == second.responses


async def test_a_delayed_answer_is_the_brokers(proxied: Proxied) -> None:
    proxied.proxy.engine.add({"api": "Produce", "delay_ms": 1})
    answers_of(proxied.upstream, 8, produced(0))

    answer = await (await proxied.connect()).call(produce(0), 8)

    assert answer == produced(0)


def fetch(session_id: int, epoch: int, *partitions: int) -> FetchRequest:
    topic = FetchRequest.Topic
    asked = [
        topic.Partition(partition=one, fetch_offset=0, partition_max_bytes=9) for one in partitions
    ]
    topics = [topic(topic_id=b"i" * 16, partitions=asked)] if asked else []
    return FetchRequest(
        max_wait_ms=500, min_bytes=1, session_id=session_id, session_epoch=epoch, topics=topics
    )


async def test_a_fetch_in_a_session_meets_the_error_of_a_partition_that_it_does_not_name(
    proxied: Proxied,
) -> None:
    client = await proxied.connect()
    answers_of(proxied.upstream, 12, metadata_of())
    await client.call(MetadataRequest(topics=None), 12)  # which tells the topic's name
    fault = {"api": "Fetch", "topic": "orders", "partition": 1, "error": ERROR.name, "on_call": 2}
    proxied.proxy.engine.add(fault)
    begun = FetchResponse(session_id=7, responses=[])
    answers_of(proxied.upstream, 17, begun, begun, begun)

    await client.call(fetch(0, 0, 0, 1), 17)
    second = await client.call(fetch(7, 1), 17)
    third = await client.call(fetch(7, 2), 17)

    codes = {key: one.error_code for key, one in by_partition(second).items()}
    assert codes == {(b"i" * 16, 1): ERROR}
    assert (second.error_code, second.session_id) == (0, 7)
    asked: Any = FetchRequest.decode(17, proxied.upstream.asked[2][12:])
    assert asked.max_wait_ms == 0, "the broker is not to wait for bytes"
    assert third == begun


def told(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """Why connections were closed, and the brokers behind them."""
    said: list[tuple[str, str]] = []

    def note(event: str, **facts: str) -> None:
        assert event == "a connection was closed"
        said.append((facts["cause"], facts["broker"]))

    monkeypatch.setattr(logs, "warning", note)
    return said


@pytest.mark.parametrize(
    ("said_by_tls", "why"),
    [
        (None, "the broker closed the connection without an answer, as a listener with TLS does"),
        (b"\x15\x03\x03\x00\x02\x02\x32", "the broker does not speak plain Kafka: "),
    ],
)
async def test_a_broker_that_speaks_tls_is_one_line(
    proxied: Proxied, monkeypatch: pytest.MonkeyPatch, said_by_tls: bytes | None, why: str
) -> None:
    said = told(monkeypatch)

    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(4)
        if said_by_tls is not None:
            writer.write(said_by_tls)
        writer.close()

    server = await asyncio.start_server(speak, LOOPBACK, 0)
    port = await proxied.brokers.open(Upstream(LOOPBACK, server.sockets[0].getsockname()[1]))

    assert await (await proxied.connect(port)).ask(b"a request") is None

    assert len(said) == 1
    assert said[0][0].startswith(why)
    server.close()


async def test_a_broker_that_cannot_be_reached_is_one_line_and_a_closed_connection(
    proxied: Proxied, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = told(monkeypatch)
    proxied.upstream.close()
    for _ in range(3):
        assert await (await proxied.connect()).ask(b"anything") is None

    why = "nobody listens at the broker's address"
    assert said == [(why, f"127.0.0.1:{proxied.upstream.port}")]


async def test_a_client_that_crashes_is_no_news_and_ends_the_connection_behind(
    proxied: Proxied, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = told(monkeypatch)
    client = await proxied.connect()
    await client.ask(b"a token")

    client.reset()

    await proxied.upstream.until(lambda: proxied.upstream.lost)
    assert said == []


async def test_a_connection_ends_with_the_brokers(proxied: Proxied) -> None:
    client = await proxied.connect()
    await client.ask(b"a token")
    proxied.upstream.connections[0].close()
    assert await client.read() is None


@pytest.mark.parametrize("size", [FRAME_BYTES_MAX + 1, -1])
async def test_a_length_that_no_frame_has_closes_the_connection(
    proxied: Proxied, size: int
) -> None:
    client = await proxied.connect()
    client.write_raw(size.to_bytes(4, signed=True) + b"bytes")
    assert await client.read() is None
    assert proxied.upstream.asked == []


@pytest.mark.parametrize("token", [b"", b"\x00alice\x00secret", b"n,,n=alice,r=nonce"])
async def test_tokens_of_sasl_without_a_header_pass(proxied: Proxied, token: bytes) -> None:
    proxied.upstream.answers = lambda frame: b"go on: " + frame
    assert await (await proxied.connect()).ask(token) == b"go on: " + token


async def test_a_request_that_is_not_understood_passes(proxied: Proxied) -> None:
    fault = proxied.proxy.engine.add({"api": "Produce", "error": ERROR.name})
    odd = request_frame(PRODUCE, 8, b"\xff" * 9)
    proxied.upstream.answers = lambda frame: b"what?"
    assert await (await proxied.connect()).ask(odd) == b"what?"
    assert fault.calls == 0


async def test_conversations_have_names_of_topics_and_faults(proxied: Proxied) -> None:
    client = await proxied.connect()
    answers_of(proxied.upstream, 12, metadata_of())
    await client.call(MetadataRequest(topics=None), 12)
    proxied.proxy.engine.add({"api": "Fetch", "topic": "orders", "error": ERROR.name})
    await client.call(fetch(0, -1, 3), 17)

    _, answer = proxied.proxy.interface.call("GET", "/requests?api=Fetch&client=c")

    (request,) = answer["requests"]
    assert "{topic_id: orders, partitions: [{partition: 3," in request["text"]
    assert request["fault"].startswith("1: Fetch topic=orders")


def test_a_proxy_refuses_what_only_a_broker_can_do() -> None:
    proxy = Proxy(Upstream(LOOPBACK, 1), now_ms=lambda: 0)
    for method, path in (("GET", "/clock"), ("POST", "/groups/g/rebalance"), ("GET", "/topics/t")):
        status, answer = proxy.interface.call(method, path)
        assert (status, "only the broker can" in answer["error"]) == (400, True)
    status, answer = proxy.interface.call("POST", "/faults", b'{"disk": "full"}')
    assert (status, answer["error"]) == (
        400,
        "a proxy has no disk to be 'full': only the broker has",
    )
    assert proxy.interface.call("GET", "/")[1]["paths"].keys() == {
        *("GET /faults", "POST /faults", "DELETE /faults", "GET /faults/{id}"),
        *("DELETE /faults/{id}", "GET /unfired", "GET /requests", "DELETE /requests"),
    }
