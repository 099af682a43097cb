"""The verdict on a client follows from what it has shown and the ranges of a release."""

from __future__ import annotations

import pytest

from protocol.client_libraries import is_since, library_of
from protocol.client_usage import ClientIdentity, ClientUsage
from protocol.client_verdicts import (
    CLOSED,
    JUDGED,
    NO_ZSTD,
    NOTHING_IN_COMMON,
    Outcome,
    age_of,
    describe,
    judge,
    remarks_on,
)

KAFKA_4 = JUDGED[1:]


def client(
    *requests: tuple[str, int], client_id: str = "", software: str = "", as_version: str = ""
) -> ClientUsage:
    name, _, version = software.partition(" ")
    usage = ClientUsage(ClientIdentity("127.0.0.1", client_id, name, version, as_version), 0)
    for api, number in requests:
        usage.note_request(api, number)
    return usage


ASKS = ("ApiVersions", 0)


@pytest.mark.parametrize("release", KAFKA_4)
@pytest.mark.parametrize(
    ("usage", "request_", "meets"),
    [
        (client(("Metadata", 0), ("Produce", 0)), "Produce v0", CLOSED),
        (client(("Metadata", 0), ("Fetch", 1)), "Fetch v1", CLOSED),
        (client(("Fetch", 2), ("ListOffsets", 0)), "Fetch v2", CLOSED),
        # One that asks, and knows no later version: of Produce it is told that the old ones are
        # there.
        (client(ASKS, ("Metadata", 2), ("Produce", 2)), "Produce v2", CLOSED),
        (client(ASKS, ("Metadata", 2), ("Fetch", 3)), "Fetch v3", NOTHING_IN_COMMON),
        (client(ASKS, ("OffsetCommit", 1)), "OffsetCommit v1", NOTHING_IN_COMMON),
        (client(ASKS, ("CreateTopics", 1)), "CreateTopics v1", NOTHING_IN_COMMON),
        # One that does not ask, and is younger than the release.
        (client(("Metadata", 99)), "Metadata v99", CLOSED),
    ],
)
def test_a_client_fails_with_kafka_4_at_its_first_request_that_is_not_there(
    usage: ClientUsage, request_: str, meets: str, release: str
) -> None:
    verdict = judge(usage, release)

    assert (verdict.outcome, verdict.request, verdict.meets) == (Outcome.FAILS, request_, meets)


@pytest.mark.parametrize("release", JUDGED)
@pytest.mark.parametrize(
    "usage",
    [
        client(ASKS, ("Metadata", 4), ("Produce", 3), ("Fetch", 5), ("ListOffsets", 2)),
        # It would use a lower version than here.
        client(("ApiVersions", 4), ("Metadata", 13), ("Produce", 13), ("Fetch", 18)),
        # Of several versions the highest is what it has in common with a broker.
        client(ASKS, ("ListOffsets", 0), ("ListOffsets", 5)),
        client(("ApiVersions", 99)),
        client(),
    ],
)
def test_a_client_that_has_a_version_in_common_is_fine(usage: ClientUsage, release: str) -> None:
    assert judge(usage, release).outcome is Outcome.FINE


def test_a_client_of_any_age_is_fine_with_3_9() -> None:
    for usage in (
        client(("Metadata", 0), ("Produce", 0), ("Fetch", 0)),
        client(ASKS, ("Produce", 2), ("Fetch", 3)),
    ):
        assert judge(usage, "3.9").outcome is Outcome.FINE


def test_a_client_that_does_not_ask_needs_every_version_that_it_sends() -> None:
    assert judge(client(("ListOffsets", 5), ("ListOffsets", 0)), "4.0").request == "ListOffsets v0"


def test_one_answered_as_an_old_release_has_shown_its_highest_version_only_below_that() -> None:
    at_the_end = client(ASKS, ("Fetch", 3), as_version="0.10.2")
    below = client(ASKS, ("Fetch", 2), as_version="0.10.2")

    assert judge(at_the_end, "4.1").outcome is Outcome.UNKNOWN
    assert judge(below, "4.1").outcome is Outcome.FAILS


def test_what_a_client_was_refused_counts_as_asked_for() -> None:
    usage = client(("Metadata", 0), as_version="4.1")
    usage.note_refusal("Produce", 0)

    assert [judge(usage, release).outcome for release in ("3.9", "4.1")] == ["fine", "fails"]


def test_zstd_is_refused_by_3_9_to_those_who_fetch_with_an_old_version() -> None:
    usage = client(ASKS, ("Fetch", 4))
    usage.zstd_conversions = 1

    assert [judge(usage, release).meets for release in ("2.0", "3.9", "4.0")] == ["", NO_ZSTD, ""]
    assert "another compression.type" in describe(usage)["advice"]


def test_an_api_that_is_unknown_here_says_nothing() -> None:
    usage = client(("Metadata", 1))
    usage.note_refusal("api key 999", 0)

    assert judge(usage, "4.1").outcome is Outcome.FINE


@pytest.mark.parametrize(
    ("usage", "age"),
    [
        (client(("Metadata", 0), ("Produce", 0)), "0.8.2"),
        (client(("Metadata", 0), ("Produce", 1)), "0.9"),
        (client(ASKS, ("Produce", 2), ("Fetch", 3)), "0.10.1"),
        (client(ASKS, ("Fetch", 4)), "0.11"),
        (client(("ApiVersions", 99)), ""),
    ],
)
def test_the_age_of_a_client_is_the_first_release_that_knows_its_versions(
    usage: ClientUsage, age: str
) -> None:
    assert age_of(usage) == age


@pytest.mark.parametrize(
    ("usage", "advice"),
    [
        (
            client(("Produce", 0), client_id="kafka-python-1.3.5"),
            "upgrade kafka-python to 2.0.2 or later, and see that nothing sets api_version",
        ),
        (
            client(("Produce", 0), client_id="kafka-python-2.0.6"),
            "remove api_version from its settings: kafka-python 2.0.6 is new enough",
        ),
        (
            client(ASKS, ("Fetch", 3), software="confluent-kafka-go 1.4.0-rdkafka-1.4.0"),
            "upgrade librdkafka to 1.8.2 or later",
        ),
        (client(ASKS, ("Fetch", 3), client_id="consumer-3"), "upgrade the Java client to 2.1"),
        (client(("Fetch", 3), client_id="pykafka"), "upgrade pykafka to a release that knows"),
        (client(("Fetch", 3), client_id="billing"), "upgrade it to a release that knows"),
    ],
)
def test_the_advice_names_the_library_and_its_release(usage: ClientUsage, advice: str) -> None:
    assert describe(usage)["advice"].startswith(advice)


def test_a_client_that_finds_no_version_is_told_so_in_the_words_of_its_library() -> None:
    usage = client(ASKS, ("Fetch", 3), client_id="consumer-billing-1")

    assert judge(usage, "4.1").sees == "UnsupportedVersionException"
    assert judge(usage, "3.9").sees == ""


def test_a_sarama_that_kip_896_takes_for_new_enough_commits_offsets_as_kafka_4_does_not() -> None:
    usage = client(("OffsetCommit", 1), client_id="sarama")

    assert judge(usage, "4.1")[:3] == ("4.1", Outcome.FAILS, "OffsetCommit v1")
    assert describe(usage)["advice"].startswith("upgrade Sarama to 1.41.0 or later")


@pytest.mark.parametrize(
    ("usage", "remark"),
    [
        (client(("Metadata", 1), client_id="rdkafka"), "librdkafka 3: brokers before Kafka 0.10.0"),
        (client(ASKS, software="librdkafka 2.3.0", as_version="0.9"), "librdkafka 3: brokers"),
        (client(ASKS, software="librdkafka 2.3.0"), ""),
        (client(("Metadata", 1), client_id="sarama"), ""),
        (client(("JoinGroup", 1)), "4.0.0: has no JoinGroup 0 and 1"),
        (client(("JoinGroup", 1), ("JoinGroup", 5)), "4.0.0: has no JoinGroup"),
        (client(ASKS, ("JoinGroup", 1)), "4.0.0: has no JoinGroup"),
        (client(ASKS, ("JoinGroup", 1), ("JoinGroup", 5)), ""),
    ],
)
def test_the_floor_of_librdkafka_3_and_what_a_patch_release_lacks_are_said_beside(
    usage: ClientUsage, remark: str
) -> None:
    assert [one[: len(remark)] for one in remarks_on(usage)] == [remark][: bool(remark)]


@pytest.mark.parametrize(
    ("client_id", "software", "library"),
    [
        ("rdkafka", "", ("librdkafka", "", False)),
        ("x", "confluent-kafka-python 2.3.0-rdkafka-2.3.1", ("librdkafka", "2.3.1", True)),
        ("x", "librdkafka 1.9.2", ("librdkafka", "1.9.2", True)),
        ("x", "apache-kafka-java 3.9.2", ("the Java client", "3.9.2", True)),
        ("x", "of-our-own 7", ("of-our-own", "7", True)),
        ("aiokafka-0.14.0", "", ("aiokafka", "0.14.0", False)),
        ("kafka.consumer.kafka", "", ("kafka-python", "", False)),
        ("consumer-billing-12", "", ("the Java client", "", False)),
        ("billing", "", None),
        ("consumer-of-something", "", None),
    ],
)
def test_the_library_is_what_the_client_tells_or_what_its_client_id_looks_like(
    client_id: str, software: str, library: tuple[str, str, bool] | None
) -> None:
    found = library_of(client(client_id=client_id, software=software).identity)

    assert (found and (found.library.name, found.release, found.told)) == library


def test_releases_of_libraries_are_compared_by_their_numbers() -> None:
    assert is_since("1.10.0", "1.8.2")
    assert is_since("v2.0", "1.8.2")
    assert is_since("1.8.2-RC1", "1.8.2")
    assert not is_since("1.8.1", "1.8.2")
    assert not is_since("unknown", "1.8.2")
