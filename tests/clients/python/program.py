"""The conversation of an old Python client with a test.

A command is a line of words, `produce key=value ...` or `consume key=value ...`; its answer is a
line of JSON, `{"ok": ...}` or `{"error": "...", "code": n}`. Records are lines of text in files;
their form is described in tests/clients/records.py.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tests.clients.records import Record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

#: For one command. A client that has not done its work by then never will.
DEADLINE_S = 30.0

Words = dict[str, str]


def answer_commands(
    produce: Callable[[Words, list[Record]], None],
    consume: Callable[[Words], Iterable[tuple[int, Record]]],
) -> None:
    """Read commands until standard input ends."""
    # Libraries may print; answers must not be mixed with that.
    answers, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        name, *pairs = line.split()
        words = dict(pair.split("=", 1) for pair in pairs)
        file = Path(words["file"])
        try:
            if name == "produce":
                lines = file.read_text(encoding="utf-8").splitlines()
                records = [Record.from_line(text) for text in lines]
                produce(words, records)
                answer: dict[str, object] = {"ok": len(records)}
            else:
                found = [f"{offset}\t{record.to_line()}\n" for offset, record in consume(words)]
                file.write_text("".join(found), encoding="utf-8")
                answer = {"ok": len(found)}
        except Exception as error:
            code = getattr(error, "errno", None)
            text = f"{type(error).__name__}: {error}"
            answer = {"error": text, "code": code if isinstance(code, int) else -1}
        print(json.dumps(answer), file=answers, flush=True)


def client_settings(words: Words) -> dict[str, str]:
    """Of the words `client.<setting>`: what the client is given beside the address."""
    prefix = "client."
    return {key[len(prefix) :]: value for key, value in words.items() if key.startswith(prefix)}


def partitions(words: Words) -> list[int]:
    """Those to be read."""
    return [int(text) for text in words["partitions"].split(",")]


def start(words: Words) -> int:
    """The offset from which all of them are read."""
    return int(words["start"])
