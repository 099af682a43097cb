"""A command of `triglot` as a user types it, with its output as bytes.

ran = typed("consume", "orders", "--until-end", "--bootstrap", bootstrap)
assert (ran.code, ran.out) == (0, b"hello\n")
"""

from __future__ import annotations

import contextlib
import io
import json
from typing import Any, NamedTuple

from tools.cli import main


class Ran(NamedTuple):
    """How a command ended, and what it wrote."""

    code: object
    out: bytes
    err: str

    @property
    def answer(self) -> Any:
        """What a command that must have succeeded says to machines, in one line."""
        assert (self.code, self.err) == (0, "")
        return json.loads(self.out)

    @property
    def answers(self) -> list[Any]:
        """The same in as many lines as there are."""
        assert (self.code, self.err) == (0, "")
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def refusal(self) -> str:
        """The sentence of a command that must have failed, in one line."""
        assert self.code in (1, 2)
        assert self.err.startswith("triglot: ")
        assert self.err.count("\n") == 1
        return self.err


def typed(*words: str) -> Ran:
    """Run it in this process."""
    out, err = io.BytesIO(), io.StringIO()
    with (
        contextlib.redirect_stdout(io.TextIOWrapper(out, "utf-8", write_through=True)) as stdout,
        contextlib.redirect_stderr(err),
    ):
        code: object
        try:
            code = main(words)
        except SystemExit as ended:
            code = ended.code
        if not stdout.closed:
            stdout.flush()
        return Ran(code, out.getvalue(), err.getvalue())
