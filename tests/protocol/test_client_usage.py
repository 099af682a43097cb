"""What a client has shown: it is kept within bounds, and its JSON says all of it."""

from __future__ import annotations

import json

import pytest

from protocol.client_usage import REFUSED_MAX, TEXT_MAX, ClientIdentity, ClientUsage
from protocol.records.compression import GZIP, ZSTD


def some_usage() -> ClientUsage:
    usage = ClientUsage(ClientIdentity("10.0.0.7", "billing", "librdkafka", "2.3.0", "4.1"), 1_000)
    usage.last_ms = 2_000
    usage.connections, usage.rebuilt_sets, usage.converted_bytes = 3, 4, 5
    for api, version in (("ApiVersions", 3), ("Produce", 7), ("Fetch", 11), ("Produce", 3)):
        usage.note_request(api, version)
    usage.note_refusal("Produce", 2)
    usage.note_written(2, ZSTD)
    usage.note_written(0, GZIP)
    usage.note_read(1, GZIP)
    return usage


def test_the_json_of_a_client_gives_the_same_client() -> None:
    told = json.loads(json.dumps(some_usage().to_json()))

    again = ClientUsage.of_json({**told, "advice": "more fields are no matter"})

    assert again.to_json() == told
    assert again.identity == some_usage().identity
    assert list(again.requests.items()) == [
        ("ApiVersions", [3]),
        ("Produce", [7, 3]),
        ("Fetch", [11]),
    ]
    assert again.written == {(0, GZIP), (2, ZSTD)}
    assert again.read == {(1, GZIP)}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("address", 7),
        ("client_id", None),
        ("first_seen_ms", "now"),
        ("last_seen_ms", -1),
        ("requests", []),
        ("requests", {"Produce": 3}),
        ("requests", {"Produce": ["3"]}),
        ("refused", None),
        ("written", [{"format": 2, "codec": "brotli"}]),
        ("written", [2]),
        ("read", [{"format": "2", "codec": "none"}]),
        ("connections", True),
        ("connections", 1.5),
    ],
)
def test_json_that_is_no_client_is_refused(field: str, value: object) -> None:
    with pytest.raises(ValueError, match=r"found|without|object|not in"):
        ClientUsage.of_json({**some_usage().to_json(), field: value})


@pytest.mark.parametrize("missing", sorted(some_usage().to_json()))
def test_json_without_a_field_is_refused_by_its_name(missing: str) -> None:
    told = some_usage().to_json()
    del told[missing]

    with pytest.raises(ValueError, match=missing):
        ClientUsage.of_json(told)


def test_what_a_client_sends_at_will_is_kept_within_bounds() -> None:
    usage = ClientUsage(ClientIdentity("", "x" * 40_000, "y" * 40_000).cut(), 0)
    for version in range(10 * REFUSED_MAX):
        usage.note_refusal("Produce", version)
        usage.note_refusal(f"api key {version}", 0)
        usage.note_written(version, version)
        usage.note_read(version, version)

    assert max(map(len, usage.identity)) == TEXT_MAX
    assert sum(map(len, usage.refused.values())) == REFUSED_MAX
    assert len(usage.written) <= 15
    assert len(usage.read) <= 15


def test_what_the_same_client_has_shown_before_comes_first() -> None:
    earlier, later = some_usage(), ClientUsage(some_usage().identity, 9_000)
    later.connections = 1
    later.note_request("Metadata", 9)
    later.note_request("Produce", 7)

    later.add(earlier)

    assert list(later.requests) == ["ApiVersions", "Produce", "Fetch", "Metadata"]
    assert (later.first_ms, later.last_ms, later.connections) == (1_000, 9_000, 4)
    assert (later.written, later.read) == (earlier.written, earlier.read)
