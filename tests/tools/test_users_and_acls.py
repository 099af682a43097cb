"""`triglot users`, `triglot acls` and `triglot certs` as a user types them, and what they change
for the clients of a broker with access rules."""

from __future__ import annotations

import io
import json
import os
import ssl
import stat
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.support import typed_command
from tests.support.secured import SecuredBroker
from tests.support.typed_bytes import typed
from tools.cli import main

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:alice",
    "connection.failed.authentication.delay.ms": "10",
}
JAAS = "org.apache.kafka.common.security.{}LoginModule required"


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    with SecuredBroker(tmp_path_factory.mktemp("secured"), SETTINGS) as broker:
        yield broker
        assert "Traceback" not in broker.output()


def config(broker: SecuredBroker, path: Path, user: str, password: str, scram: str = "") -> str:
    """A file for --command-config."""
    jaas = JAAS.format("scram.Scram" if scram else "plain.Plain")
    path.write_text(
        "security.protocol=SASL_SSL\n"
        f"ssl.truststore.location={broker.authority.certificate}\n"
        f"sasl.mechanism={scram or 'PLAIN'}\n"
        f'sasl.jaas.config={jaas} username="{user}" password="{password}";\n'
    )
    path.chmod(0o600)
    return str(path)


@pytest.fixture
def alice(secured: SecuredBroker, tmp_path: Path) -> str:
    """The super user's file."""
    return config(secured, tmp_path / "alice.properties", "alice", "alice-secret")


class Commands:
    """Commands to one broker with one file."""

    def __init__(self, broker: SecuredBroker, file: str) -> None:
        self.bootstrap = broker.bootstrap_of("SASL_SSL")
        self.file = file

    def run(self, words: str) -> tuple[int, str, str]:
        command, *rest = words.split()
        return typed_command.run(
            command, self.bootstrap, *rest, "--timeout", "10", "--command-config", self.file
        )

    def answer(self, words: str) -> Any:
        code, out, err = self.run(f"{words} --json")
        assert (code, err) == (0, "")
        return json.loads(out)


@pytest.fixture
def as_alice(secured: SecuredBroker, alice: str) -> Commands:
    return Commands(secured, alice)


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_user_that_is_added_can_log_in_until_it_is_removed(
    secured: SecuredBroker, as_alice: Commands, tmp_path: Path, mechanism: str
) -> None:
    password = tmp_path / "password"
    password.write_text("the first line\nanother\n")
    dora = Commands(
        secured, config(secured, tmp_path / "d", "dora, 1=2", "the first line", mechanism)
    )
    bootstrap = ["--bootstrap", as_alice.bootstrap, "--command-config", as_alice.file]

    assert main(["users", "add", "dora, 1=2", "--password-file", str(password), *bootstrap]) == 0
    code, out, err = dora.run("groups list")
    assert (code, err) == (0, ""), out
    listed = as_alice.answer("users list")["users"]
    assert [one["mechanism"] for one in listed if one["user"] == "dora, 1=2"] == [
        "SCRAM-SHA-256",
        "SCRAM-SHA-512",
    ]

    assert main(["users", "remove", "dora, 1=2", *bootstrap]) == 0
    code, _, err = dora.run("groups list")
    assert code == 1
    assert "refuses user 'dora, 1=2'" in err
    assert "the first line" not in err
    code, _, err = as_alice.run("users remove dora")
    assert (code, err) == (
        1,
        "triglot: there is no user 'dora' with SCRAM-SHA-256 or SCRAM-SHA-512\n",
    )


def test_records_are_written_and_read_as_rules_allow_and_a_wrong_password_is_one_line(
    secured: SecuredBroker, alice: str, tmp_path: Path
) -> None:
    (tmp_path / "lines").write_bytes(b"over TLS\n")
    there = ("--bootstrap", secured.bootstrap_of("SASL_SSL"), "--command-config")
    produce = ("produce", "of-alice", str(tmp_path / "lines"), *there)
    consume = ("consume", "of-alice", "--until-end", *there)
    assert typed("topics", "create", "of-alice", *there, alice).code == 0
    assert typed(*produce, alice).code == 0
    assert typed(*consume, alice).out == b"over TLS\n"
    unknown = config(secured, tmp_path / "w", "alice", "wrong")
    other = config(secured, tmp_path / "b", "bob", "bob-secret")
    for words in (produce, consume):
        said = typed(*words, unknown).refusal
        assert "refuses user 'alice' by PLAIN" in said
        assert "wrong" not in said
        assert "TOPIC_AUTHORIZATION_FAILED" in typed(*words, other).refusal


def test_a_password_comes_from_standard_input_and_one_mechanism_is_enough(
    as_alice: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("piped\n"))
    made = as_alice.answer("users add erin --mechanism SCRAM-SHA-512")
    assert made == {"user": "erin", "mechanisms": ["SCRAM-SHA-512"], "done": "added"}
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n"))
    code, _, err = as_alice.run("users add erin")
    assert (code, err) == (1, "triglot: the password is empty\n")


def test_a_password_is_no_argument() -> None:
    with pytest.raises(SystemExit) as ended:
        main(["users", "add", "erin", "--password", "secret"])
    assert ended.value.code == 2


def test_rules_are_added_listed_explained_and_removed(
    secured: SecuredBroker, as_alice: Commands, tmp_path: Path
) -> None:
    bob = Commands(secured, config(secured, tmp_path / "bob.properties", "bob", "bob-secret"))
    question = "acls explain --principal bob --operation describe"
    code, out, err = as_alice.run(f"{question} --group billing")
    assert (code, out.splitlines()[:2]) == (
        1,
        ["denied: User:bob describe group 'billing'", "  the resource has no rules"],
    )
    assert err == "triglot: denied: User:bob describe group 'billing'\n"
    assert bob.answer("groups list")["groups"] == []

    code, out, err = as_alice.run("acls add --principal bob --consumer --topic orders --group bill")
    assert (code, err) == (0, "")
    assert out.splitlines()[-1] == "added 3 rules"
    as_alice.answer("acls add --principal User:bob --operation read --group bill --prefix")
    as_alice.answer("acls add --deny --principal * --operation read --topic orders --host 10.0.0.7")

    code, out, _ = as_alice.run(f"{question} --group billing")
    assert (code, out.splitlines()[:2]) == (
        0,
        [
            "allowed: User:bob describe group 'billing'",
            "  a rule allows it: allow User:bob read group 'bill' (prefixed)",
        ],
    )
    reading = "acls explain --principal bob --operation read --topic orders"
    assert as_alice.answer(reading)["allowed"] is True
    code, out, _ = as_alice.run(f"{reading} --host 10.0.0.7")
    assert code == 1
    assert "a rule denies it: deny User:* read topic 'orders' from 10.0.0.7" in out
    assert as_alice.answer("acls explain --principal alice --operation all --cluster")[
        "reason"
    ] == ("User:alice is a super user")

    assert len(as_alice.answer("acls list --group billing")["rules"]) == 0
    assert len(as_alice.answer("acls list --group billing --matching")["rules"]) == 1
    assert len(as_alice.answer("acls list --principal bob")["rules"]) == 4
    assert len(as_alice.answer("acls remove --principal bob")["rules"]) == 4
    assert len(as_alice.answer("acls remove --topic orders")["rules"]) == 1
    assert as_alice.answer("acls list")["rules"] == []


def test_whoever_may_not_is_told_so(secured: SecuredBroker, tmp_path: Path) -> None:
    bob = Commands(secured, config(secured, tmp_path / "bob.properties", "bob", "bob-secret"))
    for words in ("acls list", "acls add --principal bob --operation all --cluster", "users list"):
        code, _, err = bob.run(words)
        assert code == 1
        assert "CLUSTER_AUTHORIZATION_FAILED" in err


def test_every_tool_of_the_network_takes_the_file(
    secured: SecuredBroker, as_alice: Commands, capsys: pytest.CaptureFixture[str]
) -> None:
    assert as_alice.answer("groups list") == {"groups": []}
    assert as_alice.answer("transactions list")["transactions"] == []
    code, _, err = typed_command.run(
        "groups", as_alice.bootstrap, "list", "--command-config", "/nowhere/client.properties"
    )
    assert (code, err) == (
        1,
        "triglot: /nowhere/client.properties can't be read: No such file or directory\n",
    )
    metadata = ["metadata", "follow", "--once", as_alice.bootstrap, "--timeout", "5"]
    code = main([*metadata, "--command-config", as_alice.file])
    assert code == 1  # it is no controller's listener, and that is what is told
    assert "certificate" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ("add --principal a --operation read", "name a resource"),
        ("add --principal a --operation fly --topic t", "invalid choice"),
        ("add --principal a --consumer --topic t", "--consumer wants --topic and --group"),
        ("add --principal a --producer --group g", "--producer is about"),
        ("add --principal a --operation read --topic * --prefix", "without --prefix"),
        ("add --principal a --operation alter --cluster --prefix", "no --prefix"),
        ("remove", "name what to remove"),
        ("list --matching", "--matching wants a resource"),
        ("list --topic a --group b", "name one resource only"),
        ("explain --principal a --operation read", "name a resource"),
    ],
)
def test_a_wrong_command_line_is_exit_code_2(
    wrong: str, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code: object = main(["acls", *wrong.split()])
    except SystemExit as ended:
        code = ended.code
    assert code == 2
    assert sentence in capsys.readouterr().err


# Certificates


def test_certificates_are_believed_by_whoever_has_the_authority(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "certs"
    assert (
        main(["certs", str(folder), "--host", "localhost", "--host", "::1", "--client", "a"]) == 0
    )
    printed = capsys.readouterr().out
    assert f"ssl.keystore.location={folder}/server.pem" in printed
    assert f"ssl.truststore.location={folder}/ca.pem" in printed
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}
    assert modes == {"ca.key": 0o600, "ca.pem": 0o644, "server.pem": 0o600, "a.pem": 0o600}

    for host in ("localhost", "::1"):
        shaken_hands(folder, host)
    with pytest.raises(ssl.SSLCertVerificationError, match=r"example\.org"):
        shaken_hands(folder, "example.org")

    authority, server = (folder / "ca.pem").read_bytes(), (folder / "server.pem").read_bytes()
    assert main(["certs", str(folder), "--json"]) == 0
    assert (folder / "ca.pem").read_bytes() == authority
    assert (folder / "server.pem").read_bytes() != server
    shaken_hands(folder, "127.0.0.1")


def shaken_hands(folder: Path, host: str) -> None:
    """A handshake in memory, with a client's certificate."""
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(folder / "server.pem")
    serving.load_verify_locations(folder / "ca.pem")
    serving.verify_mode = ssl.CERT_REQUIRED
    serving.verify_flags |= ssl.VERIFY_X509_STRICT
    asking = ssl.create_default_context(cafile=folder / "ca.pem")
    asking.verify_flags |= ssl.VERIFY_X509_STRICT
    asking.load_cert_chain(folder / "a.pem")
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = asking.wrap_bio(to_client, to_server, server_hostname=host)
    server = serving.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(3):
        for side in (client, server):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    certificate = server.getpeercert()
    assert certificate is not None
    assert certificate["subject"] == ((("commonName", "a"),),)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--client", "../x"], "wanted letters, digits"),
        (["--client", "server"], "wanted letters, digits"),
        (["--days", "0"], "wanted 1 to"),
        (["--host", "h\u00f6st"], "no name of a host"),
    ],
)
def test_certificates_that_cannot_be_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], sentence: str
) -> None:
    assert main(["certs", str(tmp_path / "certs"), *words]) == 1
    assert sentence in capsys.readouterr().err


def test_an_authority_without_its_key_is_not_made_anew(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["certs", str(tmp_path)]) == 0
    os.remove(tmp_path / "ca.key")  # noqa: PTH107
    assert main(["certs", str(tmp_path)]) == 1
    assert "ca.key is not" in capsys.readouterr().err
