"""A file that has grown past one screenful of thought has a second file in it."""

from __future__ import annotations

import ast
from functools import cache

from tests.style.sources import BESIDE, FLOORS, python_files, text, tree

FILE_LINES = 500
FUNCTION_LINES = 60

# Path, or path:function, and why it is better whole. Keep it short.
EXCUSED: dict[str, str] = {
    "broker/background/cleaner.py": "compaction as a whole, from the plan to the checkpoint",
    "broker/coordinator/classic/group.py": "a classic group: its states, requests and deadlines",
    "storage/log.py": "one log: append, write, roll, sync, read, fail and close",
    "storage/segment.py": "one segment with its file and its indexes, a whole machine",
    "tests/storage/inspection/test_cases.py": "a list of cases, each with its check and repair",
}


@cache
def too_large() -> dict[str, int]:
    """What is over a limit, as `path` or `path:function`, with its lines."""
    found: dict[str, int] = {}
    for path in python_files(*FLOORS, *BESIDE):
        lines = text(path).count("\n")
        if lines > FILE_LINES:
            found[path] = lines
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines > FUNCTION_LINES:
                    found[f"{path}:{node.name}"] = lines
    return found


def test_files_and_functions_stay_within_their_limits() -> None:
    over = {name: lines for name, lines in too_large().items() if name not in EXCUSED}
    assert not over, f"over {FILE_LINES} lines a file or {FUNCTION_LINES} a function: {over}"


def test_every_excuse_is_still_needed() -> None:
    assert set(EXCUSED) <= set(too_large())
    assert all(len(reason.split()) >= 5 for reason in EXCUSED.values())
