"""Passwords are not shown, and it is said where they were given for all users of the machine to
see."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.broker_process import BrokerProcess
from tests.support.secured import SecuredBroker
from tests.support.server_process import ServerFailed
from tests.support.tokens import jwk, key_set

if TYPE_CHECKING:
    from pathlib import Path

SECRET = "tell-nobody"
CREDENTIAL = f"SCRAM-SHA-256=[name=carol,password={SECRET}]"
SEEN = "can be read or written by every user of this machine; chmod o-rwx"


def said_at_start(tmp_path: Path, *arguments: str) -> str:
    with BrokerProcess(tmp_path / "data", arguments=arguments) as broker:
        return broker.output()


def of_mode(path: Path, text: str, mode: int) -> Path:
    path.write_text(text)
    path.chmod(mode)
    return path


@pytest.mark.parametrize("mode", [0o644, 0o602, 0o640, 0o600])
def test_a_settings_file_with_passwords_that_others_may_read_is_named(
    tmp_path: Path, mode: int
) -> None:
    text = f"ssl.keystore.password={SECRET}\nmetrics.bearer.token={SECRET}\nnum.partitions=2\n"
    file = of_mode(tmp_path / "server.properties", text, mode)

    said = said_at_start(tmp_path, "--config", str(file))

    named = f"{file} has metrics.bearer.token, ssl.keystore.password and {SEEN} {file}" in said
    assert named == bool(mode & 0o007)
    assert SECRET not in said


def test_a_settings_file_without_passwords_may_be_read_by_all(tmp_path: Path) -> None:
    file = of_mode(tmp_path / "server.properties", "num.partitions=2\n", 0o644)
    assert "passwords" not in said_at_start(tmp_path, "--config", str(file))


@pytest.mark.parametrize("mode", [0o602, 0o644])
def test_a_settings_file_that_others_may_write_is_named(tmp_path: Path, mode: int) -> None:
    file = of_mode(tmp_path / "server.properties", "num.partitions=2\n", mode)

    said = said_at_start(tmp_path, "--config", str(file))

    assert ("every user of this machine may change the settings" in said) == (mode == 0o602)


def test_passwords_on_the_command_line_are_named(tmp_path: Path) -> None:
    token = f"metrics.bearer.token={SECRET}"
    said = said_at_start(tmp_path, "--set", token, "--add-scram", CREDENTIAL)

    assert "metrics.bearer.token: given on the command line, which the list of processes" in said
    assert "a password was given on the command line" in said
    assert SECRET not in said


@pytest.mark.parametrize("mode", [0o644, 0o600])
def test_a_file_of_users_that_others_may_read_is_named(tmp_path: Path, mode: int) -> None:
    file = of_mode(tmp_path / "users", CREDENTIAL + "\n", mode)

    said = said_at_start(tmp_path, "--add-scram", f"@{file}")

    assert (f"{file} has passwords of users (--add-scram) and {SEEN}" in said) == (mode == 0o644)
    assert SECRET not in said


def test_a_truststore_that_others_may_write_stops_the_start(tmp_path: Path) -> None:
    broker = SecuredBroker(tmp_path, {"ssl.client.auth": "required"})
    broker.authority.certificate.chmod(0o646)
    with pytest.raises(ServerFailed, match="says who is trusted and can be written by every user"):
        broker.start()


def test_a_file_of_an_issuers_keys_that_others_may_write_stops_the_start(tmp_path: Path) -> None:
    keys = tmp_path / "keys.json"
    keys.write_bytes(key_set([jwk("RS256", "one")]))
    keys.chmod(0o646)
    given = {
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
        "sasl.oauthbearer.expected.audience": "kafka",
    }
    with pytest.raises(ServerFailed, match="every user of this machine can write it; chmod o-w"):
        SecuredBroker(tmp_path, given).start()
