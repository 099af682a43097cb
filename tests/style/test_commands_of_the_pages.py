"""A page names no command, option, key, port's page or file that is not there.

Command lines of ours, in a block or within the text, are given to the parsers that the commands
have. Those of other programs are on pages that a test types, or excused with the reason.
"""

from __future__ import annotations

import argparse
import functools
import re
import tomllib
from itertools import chain
from typing import TYPE_CHECKING

import pytest

from broker.metadata import quotas
from broker.metrics.listener import PAGES as SERVED
from client.security import KEYS as CLIENT_KEYS
from config.group import GROUP_KEYS
from config.keys import known_key, known_keys
from config.topic import TopicSettings
from pipeline.cli import _parsed, _parsers
from tests.style.pages import PAGES, Command, blocks, commands, inline
from tests.style.sources import BESIDE, CHECKOUT, FLOORS, text
from tools.cli import _parser

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

COMMANDS = [one for page in PAGES for one in commands(page)]
OURS = [one for one in COMMANDS if one.program == "triglot"]
OTHERS = [one for one in COMMANDS if one.program not in ("triglot", "make")]

TYPED = {
    "README.md": "tests/style/test_examples.py",
    "docs/behaviour.md": "tests/clients/test_kafkas_tools_on_the_pages.py",
    "docs/census.md": "tests/tools/test_the_page_on_the_census.py",
    "docs/changing-the-record-format.md": "tests/promises/test_the_page_on_changing_formats.py",
    "docs/commands.md": "tests/tools/commands/test_the_page.py",
    "docs/faults.md": "tests/clients/test_the_page_on_faults.py",
    "docs/moving-to-kafka.md": "tests/clients/test_the_page_on_moving.py",
    "docs/operations.md": "tests/containers/test_systemd.py",
    "docs/retention-that-waits.md": "tests/clients/test_kafkas_tools_on_the_pages.py",
    "docs/security.md": "tests/clients/test_the_page_on_security.py",
    "docs/transactions.md": "tests/clients/transactions_command/test_kafka_transactions_tool.py",
}
"""Pages with commands of other programs, and the test that types them."""

LOOKED_AT = {"curl", "pip"}
"""What is not typed of these is looked at here: pages of the metrics port, and extras."""
NOT_TYPED = {
    ("docs/docker.md", "docker"): "tests/containers/test_compose.py does it with podman",
    ("docs/object-stores.md", "export"): "whoever types it has keys of a store",
    ("docs/pipeline-on-a-cluster.md", "export"): "tests/pipeline/spark_places.py sets it",
    ("docs/pipeline-on-a-cluster.md", "kubectl"): "not tried, which the page says",
    ("docs/pipeline-on-a-cluster.md", "spark-submit"): "tests/pipeline/test_install.py does",
}
"""Commands of other programs that are on no page of TYPED, and what becomes of them."""

OF_KAFKA = {
    "--alter", "--bootstrap-controller", "--cluster-metadata-decoder", "--delete-config",
    "--describe", "--entity-default", "--entity-name", "--entity-type", "--expire", "--hmac",
    "--metadata", "--owner-principal", "--release-version", "--renew", "--standalone",
}  # fmt: skip
OF_CONTAINERS = {"--build", "--shm-size", "--tag", "--target", "--volumes"}
OF_OTHERS = {"--descriptor_set_out", "--include_imports", "--only", "--sparse", "--wheel"}
"""Options of protoc, of our benchmarks, of cp and of `python -m build`."""
OPTIONS_OF_OTHERS = OF_KAFKA | OF_CONTAINERS | OF_OTHERS

PLACEHOLDER = re.compile(r"\.\.\.|^\[|^[A-Z]")
"""Of a word that stands for others, or of a command that goes on."""


def parsers(words: Sequence[str]) -> tuple[argparse.ArgumentParser, list[str]]:
    """The parser of the command that these words begin with, and the words behind its name."""
    if words[0] == "pipeline":
        parser: argparse.ArgumentParser = _parsers()[0]
        rest = list(words[1:])
    else:
        parser, rest = _parser(words[0]), list(words)
    while rest and (known := commands_of(parser)):
        if PLACEHOLDER.search(rest[0]) or rest[0].startswith("-"):
            break
        assert rest[0] in known, f"there is no command {rest[0]}, only {', '.join(known)}"
        parser = known[rest.pop(0)]
    return parser, rest


def commands_of(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Those that are next, empty at the end."""
    below = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    return dict(below[0].choices) if below else {}


@functools.cache
def our_options() -> frozenset[str]:
    return frozenset(chain(all_options(_parser("")), all_options(_parsers()[0])))


def all_options(parser: argparse.ArgumentParser) -> Iterator[str]:
    for action in parser._actions:
        yield from action.option_strings
    for below in commands_of(parser).values():
        yield from all_options(below)


@pytest.mark.parametrize("command", OURS, ids=str)
def test_a_command_of_a_page_is_understood(command: Command) -> None:
    words = list(command.words)
    options_are_known(words)
    if "--help" in words or any(PLACEHOLDER.search(word) for word in words):
        return
    if words[0] == "pipeline":
        _parsed(words[1:])
    else:
        _parser(words[0]).parse_args(words)  # which ends where it does not understand


def options_are_known(words: Sequence[str]) -> None:
    parser, rest = parsers(words)
    for name in (word.partition("=")[0] for word in rest if word.startswith("--")):
        assert name in parser._option_string_actions, f"{parser.prog} has no option {name}"


@pytest.mark.parametrize("page", PAGES)
def test_commands_and_options_within_the_text_are_there(page: str) -> None:
    for code in inline(page):
        if re.match(r"triglot [a-z]", code):
            options_are_known(code.split()[1:])
        for option in re.findall(r"(?<![\w-])--(?!triglot-)[a-z][\w-]*", code):
            assert option in our_options() | OPTIONS_OF_OTHERS, f"there is no option {option}"


@pytest.mark.parametrize("page", sorted({one.page for one in OTHERS}))
def test_commands_of_other_programs_are_typed_by_a_test_or_excused(page: str) -> None:
    if page in TYPED:
        name = page.rpartition("/")[2]
        assert name in text(TYPED[page]), f"{TYPED[page]} does not name {name}"
    else:
        programs = {one.program for one in OTHERS if one.page == page} - LOOKED_AT
        assert not {one for one in programs if (page, one) not in NOT_TYPED}


def test_every_excuse_is_needed() -> None:
    there = {(one.page, one.program) for one in OTHERS if one.page not in TYPED}
    assert set(NOT_TYPED) <= there
    assert set(TYPED) <= {one.page for one in OTHERS}


QUOTAS = {*quotas._OF_CLIENTS, *quotas._OF_ADDRESSES}


def is_key(name: str) -> bool:
    """Whether a broker, a topic, a group, a quota or a client of ours has a key of that name."""
    known = {*TopicSettings.KEYS, *GROUP_KEYS, *QUOTAS, *CLIENT_KEYS}
    return name in known or known_key(name) is not None


FOLDERS = tuple(f"{folder}/" for folder in (*FLOORS, *BESIDE))
MODULES = tuple(f"{folder}." for folder in (*FLOORS, *BESIDE))
WRONG_ON_PURPOSE = {"key", "retention.mss"}
"""Of a form, and of a command that is shown to be refused."""
KEY = r"[a-z][\w.]*"


@pytest.mark.parametrize("page", PAGES)
def test_every_key_that_is_set_on_a_page_is_one(page: str) -> None:
    code = [block for _, block in blocks(page)] + inline(page)
    flag = r"(?:--set|--unset|--add-config|--delete-config|configs (?:alter|reset).* -c)[ =]+"
    set_by = [
        name
        for given in re.findall(rf"{flag}((?:{KEY}(?:=[^\s,]*)?,?)+)", "\n".join(code))
        for name in re.findall(rf"(?:^|,)({KEY})(?==|$)", given)
    ]
    lines = [
        re.match(rf"({KEY})=", line)
        for info, block in blocks(page)
        if info == "properties"
        for line in block.splitlines()
    ]
    named = [*set_by, *(line[1] for line in lines if line)]
    assert not [name for name in named if not is_key(name) and name not in WRONG_ON_PURPOSE]


OUR_FIRST_WORDS = tuple({f"{key.partition('.')[0]}." for key in known_keys()})
"""What keys of brokers begin with. Names that begin otherwise are not ours to know."""
NOT_KEYS = ("kafka.", *MODULES)

NAMES_OF_OTHERS = {
    "auto.offset.reset", "group.instance.id", "message.timeout.ms", "metadata.broker.list",
    "metadata.recovery.strategy", "ssl.ca.location", "ssl.certificate.location",
    "ssl.key.location", "transaction.timeout.ms",
}  # fmt: skip
"""Keys of producers and consumers that begin as some of a broker do."""


@pytest.mark.parametrize("page", PAGES)
def test_every_key_within_the_text_is_one(page: str) -> None:
    for code in inline(page):
        found = re.match(r"[a-z]+(?:\.[a-z]+){2,}(?=$|=)", code)
        if found and code.startswith(OUR_FIRST_WORDS) and not code.startswith(NOT_KEYS):
            assert is_key(found[0]) or found[0] in NAMES_OF_OTHERS, f"there is no key {found[0]}"


@pytest.mark.parametrize("page", PAGES)
def test_every_extra_port_and_file_that_a_page_names_is_there(page: str) -> None:
    extras = tomllib.loads(text("pyproject.toml"))["project"]["optional-dependencies"]
    for named in re.findall(r"\btriglot\[([\w,-]+)\]", text(page)):
        assert set(named.split(",")) <= set(extras), f"there is no extra {named}"
    for path in re.findall(r"127\.0\.0\.1:9404(/[\w/-]+)", text(page)):
        assert path in SERVED, f"the metrics port has no page {path}"
    for code in inline(page):
        if code.startswith(FOLDERS) and re.fullmatch(r"[\w./*-]+\.[a-z]+", code):
            assert any(CHECKOUT.glob(code)), f"there is no file {code}"
