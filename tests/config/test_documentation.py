"""The page, the sample file and the command that prints them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from config import load
from config.__main__ import main
from config.broker import BrokerSettings
from config.documentation import page, sample
from config.keys import known_key, known_keys
from config.listener_security import ListenerSecurity
from config.not_yet import NOT_YET, unread, why_not_yet
from config.topic import TopicSettings

ROOT = Path(__file__).parents[2]


def test_the_page_is_current() -> None:
    written = (ROOT / "docs/config.md").read_text()
    assert written == page(), "python -m config docs > docs/config.md"


def test_the_sample_is_current() -> None:
    written = (ROOT / "examples/server.properties").read_text()
    assert written == sample(), "python -m config sample > examples/server.properties"


def test_the_page_has_a_row_for_every_key() -> None:
    rows = re.findall(r"^\| `([^`]+)` \|", page(), re.MULTILINE)
    assert set(rows) == known_keys().keys() | TopicSettings.KEYS.keys()


def test_no_cell_of_the_page_breaks_its_table() -> None:
    for line in page().splitlines():
        if line.startswith("|"):
            assert line.count("|") in (4, 5, 6), line


def test_the_sample_as_it_is_changes_nothing() -> None:
    assert load(properties_file=ROOT / "examples/server.properties") == load()


def test_the_sample_with_every_key_taken_in_says_the_defaults(tmp_path: Path) -> None:
    text = re.sub(r"^#(?=[a-z][^ ]*=.)", "", sample(), flags=re.MULTILINE)
    path = tmp_path / "server.properties"
    path.write_text(text)
    settings = load(properties_file=path)
    differ = [key.name for key in known_keys().values() if settings.value(key) != load().value(key)]
    assert differ == []
    assert len(settings.layers.static) > 90


def test_the_sample_offers_only_keys_that_are_meant_to_do_something() -> None:
    offered = re.findall(r"^#([a-z][a-z0-9.]*)=", sample(), re.MULTILINE)
    assert sorted(offered) == sorted(
        name
        for name, key in (BrokerSettings.KEYS | ListenerSecurity.KEYS).items()
        if not (key.unused or key.internal)
    )


@pytest.mark.parametrize(("argument", "text"), [("docs", page()), ("sample", sample())])
def test_the_command_prints_page_and_sample(
    argument: str, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([argument]) == 0
    assert capsys.readouterr().out == text


def test_the_command_lists_keys_and_says_how_it_is_used(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["keys"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "broker\tnum.partitions\tint\tyes\t1" in lines
    assert "broker\tzookeeper.connect\tstring\tnone\tnull" in lines
    assert main([]) == 2
    assert capsys.readouterr().err.startswith("python -m config docs")


def source() -> str:
    paths = [path for folder in ("broker", "storage") for path in (ROOT / folder).rglob("*.py")]
    paths.append(ROOT / "config/keystores.py")  # for brokers and clients
    return "\n".join(path.read_text() for path in paths)


def waiting() -> set[str]:
    return {name for names in NOT_YET.values() for name in names}


def test_a_key_said_to_have_an_effect_is_read_by_the_broker_or_the_storage() -> None:
    assert set(unread(source())) <= waiting(), "read it, or add it to config/not_yet.py"


def test_a_key_that_is_read_is_not_said_to_wait() -> None:
    assert waiting() <= set(unread(source())), "take it out of config/not_yet.py"


def test_a_key_that_waits_is_a_key() -> None:
    assert [name for name in waiting() if not (known_key(name) or name in TopicSettings.KEYS)] == []


def test_a_key_that_waits_is_described_as_waiting() -> None:
    text = page()
    for name in waiting():
        assert re.search(rf"^\| `{re.escape(name)}` .*\| not yet \|", text, re.MULTILINE), name


def test_a_broker_key_waits_where_the_topics_key_does() -> None:
    for key in TopicSettings.KEYS.values():
        for name in key.broker:
            behind = known_key(name)
            assert behind is not None
            if name not in waiting() and name not in TopicSettings.KEYS:
                assert bool(why_not_yet(behind)) == bool(why_not_yet(key)), name


def test_a_key_with_an_effect_is_described_with_when_it_changes() -> None:
    assert "| `segment.bytes` | `1073741824` | int | at any time |" in page()
    assert "| `num.partitions` | `1` | int | at start |" in page()
    assert "| `remote.storage.enable` | `false` | boolean | none |" in page()
