"""as.version: the releases it takes, and what is wrong with others."""

from __future__ import annotations

import pytest

from config import BrokerSettings, ConfigError, load
from config.formats import NAMES

AN_OLD_LISTENER = {
    "listeners": "PLAINTEXT://127.0.0.1:9092,OLD://127.0.0.1:9093,CONTROLLER://127.0.0.1:9094",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OLD:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "controller.listener.names": "CONTROLLER",
}


def settings(**given: str) -> BrokerSettings:
    return load(overrides={key.replace("__", "."): value for key, value in given.items()})


def refusal(given: dict[str, str]) -> str:
    with pytest.raises(ConfigError) as refused:
        load(overrides=given)
    return str(refused.value)


@pytest.mark.parametrize(
    ("given", "name"),
    [
        *zip(NAMES, NAMES, strict=True),
        ("0.8.2.2", "0.8.2"),
        ("0.9.0", "0.9"),
        ("0.9.0.1", "0.9"),
        ("0.11.0.3", "0.11"),
        ("2.8.1", "2.8"),
        ("4.1.2", "4.1"),
    ],
)
def test_a_release_is_named_with_or_without_its_patch(given: str, name: str) -> None:
    assert settings(as__version=given).as_version == name


@pytest.mark.parametrize(
    ("given", "nearest"),
    [
        ("0.7", "0.8.2"),
        ("0.8.1", "0.8.2"),
        ("0.10.3", "0.10.2"),
        ("1.2", "1.1"),
        ("2.9", "2.8"),
        ("4.9", "4.4"),
        ("5.0", "4.4"),
    ],
)
def test_the_nearest_release_is_named_for_one_that_is_not_there(given: str, nearest: str) -> None:
    said = refusal({"as.version": given})

    assert said.startswith(f"--set: as.version = '{given}': wanted one of Kafka's releases 0.8.2, ")
    assert said.endswith(f"; the nearest is {nearest}")


@pytest.mark.parametrize("given", ["", "4", "latest", "v2.8", "2.8-IV1", "3.x", "99999.1", "2..8"])
def test_what_is_no_release_is_told_all_of_them(given: str) -> None:
    said = refusal({"as.version": given})

    assert "0.8.2, 0.9, 0.10.0" in said
    assert said.endswith("4.3, 4.4")


def test_a_listener_has_its_own_release() -> None:
    given = AN_OLD_LISTENER | {"as.version": "3.9", "listener.name.old.as.version": "0.9.0.1"}
    found = load(overrides=given)

    assert [found.as_version_on(name) for name in ("PLAINTEXT", "OLD")] == ["3.9", "0.9"]


@pytest.mark.parametrize("name", ["odl", "controller"])
def test_a_listener_that_is_not_for_clients_is_refused(name: str) -> None:
    said = refusal(AN_OLD_LISTENER | {f"listener.name.{name}.as.version": "2.8"})

    assert said == (
        f"--set: listener.name.{name}.as.version = '2.8': no listener for clients is named {name}; "
        "there is plaintext, old"
    )


def test_a_release_without_tls_is_refused_where_tls_is_spoken() -> None:
    given = {"listeners": "SASL_PLAINTEXT://127.0.0.1:9092", "as.version": "0.8.2"}

    assert "Kafka 0.8.2 has neither TLS nor SASL, and SASL_PLAINTEXT speaks" in refusal(given)


def test_client_ids_have_their_own_releases() -> None:
    found = load(overrides={"as.version.client.ids": "billing:0.10.2.1, a:b:4.1"})

    assert found.as_version_client_ids == (("billing", "0.10.2"), ("a:b", "4.1"))
    assert "wanted" in refusal({"as.version.client.ids": "billing"})
    assert "the nearest is 2.8" in refusal({"as.version.client.ids": "billing:2.9"})


@pytest.mark.parametrize(
    ("release", "record_format", "zstd"),
    [("0.9", 0, False), ("0.10.1", 1, False), ("0.11", 2, False), ("2.1", 2, True)],
)
def test_topics_follow_the_release_unless_they_are_told_otherwise(
    release: str, record_format: int, *, zstd: bool
) -> None:
    found = settings(as__version=release)
    assert (found.record_format, found.knows_zstd) == (record_format, zstd)

    told = load(
        overrides={
            "as.version": release,
            "log.message.format.version": "3.0",
            "inter.broker.protocol.version": "3.9",
        }
    )
    assert (told.record_format, told.knows_zstd) == (2, True)


def test_nothing_follows_from_a_release_of_one_listener() -> None:
    given = AN_OLD_LISTENER | {"listener.name.old.as.version": "0.9"}

    assert load(overrides=given).record_format == 2
