"""`triglot clients`: the table, the reasons, JSON, and where it finds the clients."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from protocol.client_usage import ClientIdentity, ClientUsage
from protocol.client_verdicts import JUDGED
from protocol.messages.metadata import MetadataRequest
from storage.clients_file import encode_clients
from tests.support.broker_process import BrokerProcess
from tests.support.caller import Caller
from tests.support.server_process import free_port
from tools.cli import main

if TYPE_CHECKING:
    from pathlib import Path

METADATA = MetadataRequest(topics=[])


def usage(client_id: str, **requests: int) -> ClientUsage:
    made = ClientUsage(ClientIdentity("10.0.0.7", client_id), 7)
    for api, version in requests.items():
        made.note_request(api, version)
    return made


OLD = usage("billing", Metadata=0, Produce=0)
OLD.note_written(0, 1)
NEW = usage("shop", ApiVersions=3, Metadata=9, Produce=9)
HOSTILE = usage("\x1b[31m<script>", Metadata=9)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    rows = [one.to_json() for one in (OLD, HOSTILE, NEW)]
    (tmp_path / "clients.json").write_bytes(encode_clients(rows, 2))
    return tmp_path


def test_the_table_says_who_fails_and_below_it_why_and_what_to_do(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["clients", "--data", str(data)]) == 0

    lines = capsys.readouterr().out.splitlines()
    assert re.search(r"^CLIENT ID +ADDRESS +SPEAKS +WROTE +3\.9 +4\.0 TO 4\.4$", lines[0])
    assert [line.split()[0] for line in lines[1:4]] == ["shop", r"\x1b[31m<script>", "billing"]
    assert re.search(r"^billing +10\.0\.0\.7 +0\.8\.2 +0: gzip +fine +fails$", lines[3])
    assert lines[5:8] == [
        "billing at 10.0.0.7",
        "  4.0 TO 4.4: Produce v0: the connection is closed",
        "  upgrade it to a release that knows Kafka 2.1 or later (KIP-896)",
    ]
    assert lines[-2:] == [
        "3 clients, 1 failing",
        "2 more were forgotten: only the last thousand are kept",
    ]


def test_json_has_the_usage_and_a_verdict_for_each_release(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["clients", "--data", str(data), "--json"]) == 0

    found = json.loads(capsys.readouterr().out)
    assert found["forgotten"] == 2
    billing = found["clients"][-1]
    assert billing["requests"] == {"Metadata": [0], "Produce": [0]}
    assert list(billing["verdicts"]) == list(JUDGED)
    assert billing["verdicts"]["3.9"] == {"outcome": "fine"}
    assert billing["verdicts"]["4.1"] == {
        "outcome": "fails",
        "request": "Produce v0",
        "meets": "the connection is closed",
    }


def test_a_remark_stands_below_the_table_though_nothing_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [usage("shop", ApiVersions=0, JoinGroup=1).to_json()]
    (tmp_path / "clients.json").write_bytes(encode_clients(rows, 0))

    assert main(["clients", "--data", str(tmp_path)]) == 0

    _, _, _, name, remark, _, total = capsys.readouterr().out.splitlines()
    assert (name, total) == ("shop at 10.0.0.7", "1 client, 0 failing")
    assert remark.startswith("  4.0.0: has no JoinGroup 0 and 1")


def test_clients_are_judged_by_the_releases_that_are_named(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["clients", "--data", str(data), "--release", "0.9", "--release", "4.4"]) == 0

    assert re.search(r"0\.9 +4\.4$", capsys.readouterr().out.splitlines()[0])


@pytest.mark.parametrize(
    ("arguments", "code", "reason"),
    [
        (["--release", "5.0"], 2, r"no release of Kafka is called '5\.0'; there are 0\.8\.2 to"),
        (["--data", "/nowhere"], 1, r"there is no /nowhere/clients\.json: no client was seen"),
        (["--url", "ftp://x"], 1, r"--url wants http://HOST:PORT"),
        (["--url", "http://127.0.0.1:1"], 1, r"no answer from http://127\.0\.0\.1:1/clients"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(
    arguments: list[str], code: int, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["clients", *arguments]) == code

    told = capsys.readouterr()
    assert re.match(rf"triglot: {reason}", told.err)
    assert (told.out, told.err.count("\n")) == ("", 1)


def test_a_torn_file_is_one_sentence(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (data / "clients.json").write_text('{"version": 1,')

    assert main(["clients", "--data", str(data)]) == 1
    assert re.match(r"triglot: .*clients\.json", capsys.readouterr().err)


def test_a_directory_whose_clients_are_malformed_is_checked_and_repaired(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data"
    with BrokerProcess(data) as broker, Caller(broker.host, broker.port) as caller:
        caller.call(METADATA)
    assert main(["check", str(data)]) == 0
    assert main(["dump", str(data / "clients.json")]) == 0
    assert "Metadata" in capsys.readouterr().out

    (data / "clients.json").write_text("{")
    main(["check", str(data)])
    assert "clients.json" in capsys.readouterr().out
    main(["repair", str(data), "--apply"])
    assert not (data / "clients.json").exists()
    capsys.readouterr()


def test_a_running_broker_is_asked_with_the_credentials_of_its_metrics(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    port = free_port()
    settings = {
        "metrics.port": str(port),
        "metrics.basic.credentials": "watcher:se cret",
        "metrics.bearer.token": "tok-en",
    }
    token = tmp_path / "token"
    with BrokerProcess(tmp_path / "data", settings=settings) as broker:
        with Caller(broker.host, broker.port, client_id="here") as caller:
            caller.call(METADATA)

        assert main(["clients", "--url", f"http://127.0.0.1:{port}"]) == 1
        assert "wants other credentials" in capsys.readouterr().err
        by_token = ["clients", "--url", f"http://127.0.0.1:{port}", "--token-file", str(token)]
        for text, said in ((None, "can't be read"), ("a b", "2 words"), ("wr-ong", "wants other")):
            if text is not None:
                token.write_text(text)
            assert main(by_token) == 1
            assert said in capsys.readouterr().err
        token.write_text("tok-en\n")
        assert main(by_token) == 0
        capsys.readouterr()
        url = f"http://watcher:se%20cret@127.0.0.1:{port}"
        assert main(["clients", "--url", url, "--json"]) == 0
        assert main(["clients", "--url", f"http://{broker.host}:{broker.port}"]) == 1

    told = capsys.readouterr()
    (client,) = json.loads(told.out)["clients"]
    assert (client["client_id"], client["verdicts"]["4.4"]["outcome"]) == ("here", "fine")
    assert "se cret" not in told.err
