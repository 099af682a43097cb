"""The floors: who may import whom, and which single file does what the others must not."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.style.sources import (
    BESIDE,
    CHECKOUT,
    FLOORS,
    calls,
    imported_modules,
    imported_names,
    python_files,
    tree,
)

if TYPE_CHECKING:
    from collections.abc import KeysView

DISK = {
    *("storage/filesystem.py", "storage/portable_files.py", "storage/linux_files.py"),
    *("storage/locking.py", "storage/opening.py"),
}
"""The file system: its interface, and what it is made of on each system."""

# Besides the file system's own door: the configuration reads a file that the user names, its
# command reads our own sources, and the clock asks the system when this process began.
DOORS = {
    *DISK,
    "config/properties.py",
    "config/__main__.py",
    "config/tls_context.py",  # OpenSSL reads keys from files alone
    "broker/clock.py",
    "tools/certs.py",  # new files for a folder of the user's, outside every data directory
}

OPENS_OR_CHANGES_FILES = {
    "open",
    "io.open",
    *(
        f"os.{name}"
        for name in (
            *("open", "rename", "replace", "remove", "unlink", "rmdir", "mkdir", "makedirs"),
            *("truncate", "ftruncate", "fsync", "fdatasync", "write", "writev", "pwrite"),
            *("pwritev", "posix_fallocate", "link", "symlink", "listdir", "scandir"),
        )
    ),
}
PATH_METHODS = ("write_text", "write_bytes", "read_text", "touch", "unlink", "mkdir", "rmdir")

VAGUE = {"util", "utils", "helper", "helpers", "manager", "managers", "common", "base", "misc"}


def test_the_import_contracts_hold() -> None:
    linter = Path(sys.executable).parent / "lint-imports"
    run = subprocess.run(
        [linter, "--no-cache"], cwd=CHECKOUT, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stdout + run.stderr


def test_no_imports_go_round_in_a_circle() -> None:
    """Imports under `if TYPE_CHECKING` and inside functions count as well."""
    assert not circles_of(imports_between(*FLOORS, "bench", "pipeline", "testing"))


def imports_between(*folders: str) -> dict[str, set[str]]:
    """The modules that each module of these folders imports, of these folders."""
    files = {module_of(path): path for path in python_files(*folders)}
    return {module: imported_of(path, files.keys()) - {module} for module, path in files.items()}


def module_of(path: str) -> str:
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def imported_of(path: str, modules: KeysView[str]) -> set[str]:
    """`from a import b` is an import of `a.b` where that is a module, and else of `a`."""
    found = set()
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            within = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= within & modules
            if within - modules:
                found.add(node.module)
    return found & modules


def circles_of(graph: dict[str, set[str]]) -> list[list[str]]:
    """The strongly connected components with more than one member (Tarjan's algorithm)."""
    circles: list[list[str]] = []
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []

    def visit(node: str) -> None:
        number[node] = lowest[node] = len(number)
        stack.append(node)
        for following in sorted(graph[node]):
            if following not in number:
                visit(following)
            if following in stack:
                lowest[node] = min(lowest[node], lowest[following])
        if lowest[node] == number[node]:
            first = stack.index(node)
            if len(stack) - first > 1:
                circles.append(sorted(stack[first:]))
            del stack[first:]

    for node in graph:
        if node not in number:
            visit(node)
    return circles


def test_a_circle_is_found_by_its_members() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set(), "e": {"f", "a"}, "f": {"e"}}
    assert circles_of(graph) == [["b", "c"], ["e", "f"]]


def test_only_the_file_system_opens_and_changes_files() -> None:
    found = [
        f"{path}:{line}: {name}"
        for path in python_files(*FLOORS)
        if path not in DOORS
        for line, name in calls(path)
        if name in OPENS_OR_CHANGES_FILES or is_method_of_a_path(name, path)
    ]
    assert not found


def is_method_of_a_path(name: str, path: str) -> bool:
    """Whether this may be a call of `Path.write_text` or the like, and not a module's function."""
    owner, _, method = name.rpartition(".")
    return method in PATH_METHODS and owner not in imported_names(path)


def test_only_the_file_system_uses_the_modules_that_do_it_for_one() -> None:
    found = [
        f"{path}:{line}: import {module}"
        for path in python_files(*FLOORS)
        if path not in DISK | {"config/tls_context.py"}
        for line, module in imported_modules(path)
        if module in {"shutil", "tempfile", "mmap", "fcntl", "glob"}
    ]
    assert not found


def test_only_the_clock_reads_a_clock() -> None:
    found = [
        f"{path}:{line}: import {module}"
        for path in python_files(*FLOORS)
        # By the file system's clock files are stamped; certificates have dates. The client stands
        # beside the broker, and its timeouts have a clock of their own.
        if path not in {"broker/clock.py", "storage/portable_files.py", "tools/certs.py"}
        if not path.startswith("client/")
        for line, module in imported_modules(path)
        if module in {"time", "datetime"}
    ]
    assert not found


def test_only_the_logs_configure_structlog() -> None:
    found = [
        f"{path}:{line}: import {module}"
        for path in python_files(*FLOORS)
        if path != "broker/logs.py"
        for line, module in imported_modules(path)
        if module.partition(".")[0] in {"structlog", "logging"}
    ]
    assert not found


@pytest.mark.parametrize("folder", [*FLOORS, *BESIDE])
def test_no_module_or_class_has_a_name_that_says_nothing(folder: str) -> None:
    modules = [path for path in python_files(folder) if Path(path).stem.strip("_") in VAGUE]
    classes = [
        f"{path}:{node.lineno}: class {node.name}"
        for path in python_files(folder)
        for node in ast.walk(tree(path))
        if isinstance(node, ast.ClassDef) and words(node.name) & (VAGUE - {"base"})
    ]
    assert not modules + classes


def words(name: str) -> set[str]:
    """The words of a class name: `LogManager` has log and manager."""
    spaced = "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in name)
    return set(spaced.split())
