"""A figure that was measured stands beside the command that shows it, or its result file.

Looked at are sections, from heading to heading, of the README and of `docs/`: times, rates and
ratios outside of code. What is no measurement (a setting, a limit of the code, what another program
does) is excused below, with what it is.
"""

from __future__ import annotations

import importlib.util
import re
import shlex

import pytest

from bench.__main__ import parsed
from tests.style.sources import CHECKOUT

GENERATED = {"docs/apis.md", "docs/clients.md", "docs/config.md"}
PAGES = sorted(
    path.relative_to(CHECKOUT).as_posix()
    for path in (CHECKOUT / "README.md", *(CHECKOUT / "docs").rglob("*.md"))
    if path.relative_to(CHECKOUT).as_posix() not in GENERATED
)
WITH_COMMANDS = sorted(
    [*PAGES, "bench/README.md"]
    + [f"bench/results/{path.name}" for path in (CHECKOUT / "bench/results").glob("*.md")]
)

NUMBER = r"(?<![\w.,`-])(?:\d[\d,]*(?:\.\d+)?|a fraction of a|half a)[\s-]+"
FIGURE = re.compile(
    NUMBER + r"(?:(?:ms|us|µs|ns|s|seconds?|minutes?|times)\b|[kKMG]i?B(?:/s| a second))"
    r"|(?<![\w.,])\d+(?:\.\d+)?(?:x|\s?%)(?!\w)|\b\d[\d,.]*\s?[kM]?/s\b"
)
SHOWN = re.compile(
    r"bench/results/[\w-]+\.(?:md|json)|`python -m bench\b[^`]*`|`make (?:bench|simulate|fuzz)\b"
)
"""A result file, or a command that measures."""

SETTING = "values of settings, and limits that are in the code"
CHOICE = "taken once, of other people's packages, to choose between them"
PROTOTYPE = "of the prototypes that the decision was made by; they are not kept"
GOAL = "what is aimed at, not what was measured"
EXCUSED = {
    ("docs/behaviour.md", "## Damaged data"): SETTING,
    ("docs/behaviour.md", "## Compaction"): SETTING,
    ("docs/decisions/0002-dependencies.md", "## Decision"): CHOICE,
    ("docs/decisions/0002-dependencies.md", "## What we measured and left out"): CHOICE,
    ("docs/decisions/0002-dependencies.md", "## What it costs"): CHOICE,
    ("docs/decisions/0003-declarations-compiled-at-first-use.md", "## Rejected"): PROTOTYPE,
    (
        "docs/decisions/0004-one-event-loop-and-few-threads.md",
        "## What would change our mind",
    ): PROTOTYPE,
    ("docs/decisions/0008-no-work-per-record-on-the-hot-path.md", "## Context"): PROTOTYPE,
    ("docs/decisions/0012-compaction-in-its-own-process.md", "## Context"): SETTING,
    ("docs/decisions/0012-compaction-in-its-own-process.md", "## Decision"): SETTING,
    ("docs/decisions/0020-what-is-checked-of-a-batch.md", "## What would change our mind"): CHOICE,
    ("docs/decisions/0021-file-descriptors-are-shared-out.md", "## What it costs"): CHOICE,
    ("docs/goals.md", "## Goals, in order"): GOAL,
    ("docs/goals.md", "## Secondary goals"): GOAL,
    ("docs/groups.md", "## Classic groups"): SETTING,
    ("docs/groups-tool.md", "# Looking at groups and moving them"): SETTING,
    ("docs/operations.md", "## Installing it"): SETTING,
    ("docs/moving-to-kafka.md", "## 2. Stop triglot, and look at the directory"): SETTING,
}
"""Sections, by page and heading, whose figures are no measurements of the present code."""


def sections(page: str) -> list[tuple[str, str]]:
    """Heading and text of each section, without blocks of code."""
    text = (CHECKOUT / page).read_text(encoding="utf-8")
    text = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    parts = re.split(r"^(#+ .*)$", text, flags=re.MULTILINE)
    return [("", parts[0]), *zip(parts[1::2], parts[2::2], strict=True)]


def unshown(page: str) -> list[tuple[str, str]]:
    """Heading and figure where a section has figures and neither a file nor a command."""
    found = []
    for heading, text in sections(page):
        if not SHOWN.search(text):
            plain = re.sub(r"`[^`]*`", "``", text)
            found += [(heading, " ".join(one[0].split())) for one in FIGURE.finditer(plain)]
    return found


@pytest.mark.parametrize("page", PAGES)
def test_a_measured_figure_names_its_command_or_its_result_file(page: str) -> None:
    missing = [
        f"{heading}: {figure}"
        for heading, figure in unshown(page)
        if (page, heading) not in EXCUSED
    ]
    assert not missing, "link a file of bench/results, or name the command, in the same section"


def test_every_excuse_is_still_needed_and_says_what_the_figure_is() -> None:
    needed = {(page, heading) for page in PAGES for heading, _ in unshown(page)}
    assert set(EXCUSED) <= needed
    assert all(len(reason.split()) >= 5 for reason in EXCUSED.values())


@pytest.mark.parametrize("page", WITH_COMMANDS)
def test_the_commands_that_measure_exist(page: str) -> None:
    text = (CHECKOUT / page).read_text(encoding="utf-8")
    for module, arguments in re.findall(r"python -m (bench[\w.]*)([^`\n#]*)", text):
        assert importlib.util.find_spec(module) is not None, module
        if module == "bench":
            parsed(shlex.split(arguments))
