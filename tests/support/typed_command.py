"""A command of `triglot` about a running broker, as a user types it.

code, out, err = run("groups", bootstrap, "list")
answer = asked("groups", bootstrap, "describe", "billing")
"""

from __future__ import annotations

import contextlib
import io
import json
from typing import Any

from tools.cli import main


def run(command: str, bootstrap: str, *arguments: str) -> tuple[int, str, str]:
    """The exit code and what was printed, on standard output and on standard error."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main([command, *arguments, "--bootstrap", bootstrap])
    return code, out.getvalue(), err.getvalue()


def asked(command: str, bootstrap: str, *arguments: str) -> Any:
    """What a command that must succeed says to machines."""
    code, out, err = run(command, bootstrap, *arguments, "--json")
    assert (code, err) == (0, "")
    return json.loads(out)


def refused(command: str, bootstrap: str, *arguments: str) -> str:
    """The sentence of a command that must fail, and do nothing else."""
    code, out, err = run(command, bootstrap, *arguments)
    assert (code, out) == (1, "")
    assert err.startswith("triglot: ")
    assert err.count("\n") == 1
    return err
