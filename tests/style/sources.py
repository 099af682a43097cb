"""The Python files of this checkout, for the tests that read them."""

from __future__ import annotations

import ast
import functools
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

CHECKOUT = Path(__file__).resolve().parents[2]
FLOORS = ("broker", "client", "config", "protocol", "storage", "tools")
BESIDE = ("bench", "docs", "examples", "pipeline", "testing", "tests")


@functools.cache
def python_files(*folders: str) -> tuple[str, ...]:
    """Paths below these folders, relative to the checkout, with forward slashes."""
    found = (path for folder in folders for path in (CHECKOUT / folder).rglob("*.py"))
    return tuple(
        sorted(
            path.relative_to(CHECKOUT).as_posix()
            for path in found
            if not {"node_modules", "__pycache__", ".cache"} & set(path.parts)
        )
    )


@functools.cache
def text(path: str) -> str:
    return (CHECKOUT / path).read_text(encoding="utf-8")


@functools.cache
def tree(path: str) -> ast.Module:
    return ast.parse(text(path), filename=path)


def imported_modules(path: str) -> Iterator[tuple[int, str]]:
    """(line, module) for every import statement, wherever it stands; relative ones are not ours."""
    return imported_by(tree(path))


def imported_by(module: ast.Module) -> Iterator[tuple[int, str]]:
    """The same for a module that was parsed."""
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.lineno, node.module


@functools.cache
def imported_names(path: str) -> frozenset[str]:
    """The names that import statements bind in a file."""
    return frozenset(
        alias.asname or alias.name
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    )


def dotted_name(node: ast.expr) -> str:
    """`os.path.join` for that expression; "" for anything that is not a chain of names."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        before = dotted_name(node.value)
        return f"{before}.{node.attr}" if before else ""
    return ""


def calls(path: str) -> Iterator[tuple[int, str]]:
    """(line, dotted name) for every call; a method of a computed value is given as `.name`."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Call):
            name = dotted_name(node.func)
            if not name and isinstance(node.func, ast.Attribute):
                name = f".{node.func.attr}"
            if name:
                yield node.lineno, name
