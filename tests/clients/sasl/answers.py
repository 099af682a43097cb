"""The file of recorded answers: for each script and broker, a line for each step.

== at first: SaslHandshake v0 PLAIN
@ 3.9.1, 4.3.1
NONE PLAIN SCRAM-SHA-256 SCRAM-SHA-512
closed
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    Told = dict[str, list[str]]
    """The lines by the title of the script."""

FILE = Path(__file__).with_name("answers.txt")


def write(told: Mapping[str, Told], titles: Sequence[str]) -> str:
    """The text for the answers of each broker."""
    lines = []
    for title in titles:
        alike: dict[tuple[str, ...], list[str]] = {}
        for broker in sorted(told):
            if title in told[broker]:
                alike.setdefault(tuple(told[broker][title]), []).append(broker)
        lines.append(f"== {title}")
        for steps, brokers in alike.items():
            lines += [f"@ {', '.join(brokers)}", *steps]
        lines.append("")
    return "\n".join(lines)


def read(text: str) -> dict[str, Told]:
    """The answers of each broker by that text."""
    found: dict[str, Told] = {}
    title = ""
    brokers: list[str] = []
    for line in text.splitlines():
        if line.startswith("== "):
            title = line[3:]
        elif line.startswith("@ "):
            brokers = line[2:].split(", ")
            for broker in brokers:
                found.setdefault(broker, {})[title] = []
        elif line:
            for broker in brokers:
                found[broker][title].append(line)
    return found
