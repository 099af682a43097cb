"""The file of recorded answers: for each question and broker, the answers and who was given each.

    == Produce v11 one topic
    @ 3.9.1, 4.3.1
    (t (TOPIC_AUTHORIZATION_FAILED))
        others
    (t (NONE))
        all, only-topic-write

Everybody who is not named was answered as `others`.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.clients.access.asking import Told

FILE = Path(__file__).with_name("answers.txt")
OTHERS = "others"


def write(told: Mapping[str, Told], titles: Sequence[str]) -> str:
    """The text for the answers of each broker."""
    lines = []
    for title in titles:
        alike: dict[str, list[str]] = {}
        for broker in sorted(told):
            if title in told[broker]:
                alike.setdefault(_grouped(told[broker][title]), []).append(broker)
        lines.append(f"== {title}")
        for text, brokers in alike.items():
            lines += [f"@ {', '.join(brokers)}", text]
        lines.append("")
    return "\n".join(lines)


def _grouped(by_user: Mapping[str, str]) -> str:
    users: dict[str, list[str]] = {}
    for user, answer in by_user.items():
        users.setdefault(answer, []).append(user)
    ordered = sorted(users, key=lambda answer: (-len(users[answer]), answer))
    lines = []
    for answer in ordered:
        named = OTHERS if answer == ordered[0] else ", ".join(sorted(users[answer]))
        lines += [answer, f"    {named}"]
    return "\n".join(lines)


def read(text: str, users: Sequence[str]) -> dict[str, Told]:
    """The answers of each broker by that text."""
    found: dict[str, Told] = {}
    title = ""
    brokers: list[str] = []
    answer = ""
    for line in text.splitlines():
        if line.startswith("== "):
            title = line[3:]
        elif line.startswith("@ "):
            brokers = line[2:].split(", ")
        elif line.startswith("    "):
            named = line.strip()
            for broker in brokers:
                by_user = found.setdefault(broker, {}).setdefault(title, {})
                if named == OTHERS:
                    by_user.update({user: answer for user in users if user not in by_user})
                else:
                    by_user.update(dict.fromkeys(re.split(", ", named), answer))
        elif line:
            answer = line
    return found
