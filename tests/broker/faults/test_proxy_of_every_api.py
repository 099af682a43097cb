"""Every API in every version through the proxy, by a codec that is made of Kafka's schemas; and the
requests of real clients.
"""

from __future__ import annotations

from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from broker.faults.proxy.answers import brokers_in
from protocol.header import API_VERSIONS_KEY
from protocol.registry import APIS, Api
from tests.protocol.frames import captured_frames
from tests.protocol.reference_schema import schema_for
from tests.protocol.reference_values import Chance, Largest, Source, tree_of
from tests.support.proxied import LOOPBACK, Proxied, answer_frame, request_frame

if TYPE_CHECKING:
    from protocol.fields import StructType

NOT_OF_BROKERS = {
    "DescribeQuorum",  # the voters' listeners, which no client connects to
    "StreamsGroupHeartbeat",  # the addresses of members, which are applications
    "StreamsGroupDescribe",
}


class Answered(Chance):
    """Anything, but for the one number by which a producer wants no answer."""

    def integer(self, low: int, high: int) -> int:
        return super().integer(low, high) or 1


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
async def test_every_version_of_every_api_passes_as_it_is(proxied: Proxied, api: Api) -> None:
    """Addresses of brokers are the proxy's."""
    client, chance = await proxied.connect(), Random(api.name)
    for version in range(api.min_version, api.max_version + 1):
        sources: list[Source] = [Largest(), *(Answered(chance) for _ in range(5))]
        for source in sources:
            request, answer = (
                (schema := schema_for(api.name, kind, version)).encode(
                    version, tree_of(schema, version, source)
                )
                for kind in ("Request", "Response")
            )
            sent = request_frame(api.key, version, request)
            expected = answered = answer_frame(api.key, version, answer)
            proxied.upstream.answers = partial(lambda answered, _: answered, answered)

            came = await client.ask(sent)

            assert proxied.upstream.asked.pop() == sent
            message: Any = api.response.decode(version, answer)
            if list(brokers_in(message)):
                start = len(answer_frame(api.key, version, b""))
                assert came is not None
                changed = api.response.decode(version, came[start:])
                assert {one.host for one in brokers_in(changed)} == {LOOPBACK}
                for old, new in zip(brokers_in(message), brokers_in(changed), strict=True):
                    old.host, old.port = new.host, new.port
                expected = answer_frame(api.key, version, message.encode(version))
            if api.key != API_VERSIONS_KEY:
                assert came == expected


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
async def test_every_version_of_every_api_can_meet_an_error_and_a_throttle(
    proxied: Proxied, api: Api
) -> None:
    client, chance = await proxied.connect(), Random(api.name)
    for version in range(api.min_version, api.max_version + 1):
        request, answer = (
            (schema := schema_for(api.name, kind, version)).encode(
                version, tree_of(schema, version, Answered(chance))
            )
            for kind in ("Request", "Response")
        )
        answered = answer_frame(api.key, version, answer)
        proxied.upstream.answers = partial(lambda answered, _: answered, answered)
        for action in ({"error": "NOT_LEADER_OR_FOLLOWER"}, {"throttle_ms": 1}):
            fault = proxied.proxy.engine.add({"api": api.name, **action})

            came = await client.ask(request_frame(api.key, version, request))

            assert came is not None
            assert fault.fired == 1
            message: Any = api.response.decode(
                version, came[len(answer_frame(api.key, version, b"")) :]
            )
            if "throttle_ms" in action and has_throttle_time(api, version):
                assert message.throttle_time_ms == 1
            proxied.proxy.engine.clear()


def has_throttle_time(api: Api, version: int) -> bool:
    fields = api.response._fields
    return any(one.name == "throttle_time_ms" and one.versions.holds(version) for one in fields)


async def test_requests_of_real_clients_pass_as_they_are(proxied: Proxied) -> None:
    client = await proxied.connect()
    sent = [one.data for one in captured_frames()]
    for data in sent:
        client.write_raw(data)

    await proxied.upstream.until(lambda: len(proxied.upstream.asked) == len(sent))

    assert proxied.upstream.asked == [data[4:] for data in sent]


def structs(of: StructType) -> list[StructType]:
    items = [field.item.struct for field in of._fields if field.item is not None]
    return [of, *(one for item in items if item is not None for one in structs(item))]


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_every_answer_with_addresses_of_brokers_is_known(api: Api) -> None:
    has_address = any(
        {"host", "port"} <= {field.name for field in one._fields} for one in structs(api.response)
    )
    schema = schema_for(api.name, "Response", api.max_version)
    newest: Any = api.response.decode(
        api.max_version,
        schema.encode(api.max_version, tree_of(schema, api.max_version, Largest())),
    )
    assert bool(list(brokers_in(newest))) == (has_address and api.name not in NOT_OF_BROKERS)
