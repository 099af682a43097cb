"""docs/census.md and docs/formats/clients.md: commands, the table and the file are as they say."""

from __future__ import annotations

import json
import re
import shlex
from typing import TYPE_CHECKING, Any

import pytest

from protocol.client_usage import ClientUsage
from protocol.records.compression import GZIP
from storage.clients_file import decode_clients, encode_clients
from tests.support.broker_process import CHECKOUT
from tests.tools.test_clients import usage
from tools.cli import main

if TYPE_CHECKING:
    from pathlib import Path

PAGE = (CHECKOUT / "docs" / "census.md").read_text(encoding="utf-8")
FORMAT = (CHECKOUT / "docs" / "formats" / "clients.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```\n(.*?)^```", PAGE, flags=re.DOTALL | re.MULTILINE)
TABLE = BLOCKS[1]
COMMANDS = re.findall(r"^triglot (clients .*)$", PAGE, flags=re.MULTILINE)


def shown() -> list[ClientUsage]:
    """The clients of the page's table."""
    old = usage("kafka.consumer.kafka", Metadata=0, ListOffsets=0, Fetch=0)
    old.converted_bytes = 638
    old.note_read(0, GZIP)
    new = usage("shop", ApiVersions=3, Metadata=13, Produce=10, Fetch=16)
    new.identity = new.identity._replace(
        address="10.0.0.9",
        software_name="confluent-kafka-python",
        software_version="2.16.1-rdkafka-2.16.0",
    )
    new.note_written(2, GZIP)
    return [old, new]


def test_the_table_of_the_page_is_what_the_command_prints(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [one.to_json() for one in shown()]
    (tmp_path / "clients.json").write_bytes(encode_clients(rows, 0))

    assert main(["clients", "--data", str(tmp_path)]) == 0
    assert capsys.readouterr().out == TABLE


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_of_the_page_is_understood(
    command: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "token").write_text("of-the-port")
    monkeypatch.chdir(tmp_path)
    nobody = command.replace(":9404", ":1").replace("/var/lib/triglot", "/nowhere")

    assert main(shlex.split(nobody)) == 1  # there is no such directory, and no such broker
    assert re.search("no answer from|there is no", capsys.readouterr().err)


def test_the_file_of_the_page_on_formats_is_read_and_written() -> None:
    (block,) = re.findall(r"^```json\n(.*?)^```", FORMAT, flags=re.DOTALL | re.MULTILINE)
    told: dict[str, Any] = json.loads(block)

    found = decode_clients(block.encode(), "clients.json")

    again = encode_clients([one.to_json() for one in found.clients], found.forgotten)
    assert json.loads(again) == told
    for field in told["clients"][0]:
        assert f"`{field}`" in FORMAT
