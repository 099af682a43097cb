"""The commands that look at a data directory without serving it: `check`, `dump`, `repair`.

`storage.inspection` does the work; here are the arguments, the lines and the exit codes.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from broker.clock import now_ms
from tools.printing import BytesOfLogs, discard_output, print_json, say

if TYPE_CHECKING:
    from collections.abc import Callable

    from storage.filesystem import Filesystem, Lock
    from storage.inspection.dump import Row
    from storage.inspection.findings import Finding
    from storage.inspection.setting_aside import Change

    Arguments = argparse.Namespace
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]

FLAWLESS, FOUND, UNUSABLE = 0, 1, 2

CHECK_HELP = """\
Go through every file of a data directory of triglot or Apache Kafka; say what is damaged or odd.

  triglot check data                      a whole directory
  triglot check data/orders-0             one partition, or one file of it
  triglot check --deep data               open the records of every batch, too
  triglot check --json data               one JSON object per finding, and a summary

The broker must be stopped. Nothing is changed. One line per finding: an error is damage, a warning
is put right by a start or worth a look, a note explains what else is there. Exit code 0: no error
and no warning. 1: some. 2: the path cannot be checked.
"""

DUMP_HELP = """\
Print what is in files of a data directory, line by line.

  triglot dump data/orders-0/00000000000000000000.log
  triglot dump --records data/orders-0            records with their keys
  triglot dump --values --from 100 --to 120 data/orders-0
  triglot dump data/recovery-point-offset-checkpoint

Logs, indexes, snapshots, checkpoints and identities are understood, also those that are put aside
or wait to be removed. Keys and values are text where they are that, else hexadecimal after 0x.
"""

REPAIR_HELP = """\
Put right what `triglot check` finds, as far as nobody has to decide it.

  triglot repair data                     say what would be done
  triglot repair --apply data             do it

What is cut out or replaced stays in its folder under a name with .damaged in it; nothing that a
person may still want is deleted. The broker must be stopped. Exit code 0: there was nothing to do,
or all of it is done. 1: something is left to do. 2: the directory cannot be repaired.
"""


def add_commands(commands: Commands) -> None:
    """Add the three commands to the command line's."""
    raw = argparse.RawDescriptionHelpFormatter
    check = commands.add_parser(
        "check",
        help="look for damage in a data directory",
        description=CHECK_HELP,
        formatter_class=raw,
    )
    check.set_defaults(run=run_check)
    check.add_argument("path", metavar="DIR", help="data directory, partition folder or file")
    check.add_argument("--deep", action="store_true", help="open the records of every batch")
    check.add_argument("--json", action="store_true", help="JSON lines, for machines")
    _add_progress(check)
    dump = commands.add_parser(
        "dump",
        help="print what is in files of a data directory",
        description=DUMP_HELP,
        formatter_class=raw,
    )
    dump.set_defaults(run=run_dump)
    dump.add_argument("paths", metavar="PATH", nargs="+", help="file or partition folder")
    dump.add_argument("--records", action="store_true", help="records with their keys")
    dump.add_argument("--values", action="store_true", help="records with keys and values")
    dump.add_argument("--from", dest="first", type=int, default=0, metavar="OFFSET")
    dump.add_argument("--to", dest="last", type=int, default=2**63 - 1, metavar="OFFSET")
    dump.add_argument("--json", action="store_true", help="JSON lines, for machines")
    repair = commands.add_parser(
        "repair",
        help="put right what check finds",
        description=REPAIR_HELP,
        formatter_class=raw,
    )
    repair.set_defaults(run=run_repair)
    repair.add_argument("path", metavar="DIR", help="data directory")
    repair.add_argument("--apply", action="store_true", help="do it; without this, only say it")
    repair.add_argument("--json", action="store_true", help="JSON lines, for machines")
    _add_progress(repair)


def _add_progress(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--progress",
        action="store_true",
        help="say on standard error how far it is, also where that is no terminal",
    )


def run_check(arguments: Arguments) -> int:
    """`triglot check`."""
    return _guarded(_check, arguments)


def run_dump(arguments: Arguments) -> int:
    """`triglot dump`."""
    return _guarded(_dump, arguments)


def run_repair(arguments: Arguments) -> int:
    """`triglot repair`."""
    return _guarded(_repair, arguments)


def _guarded(command: Callable[[Arguments], int], arguments: Arguments) -> int:
    """Run a command; what stops it becomes one sentence, or nothing if the reader has gone."""
    from storage.errors import DataDirectoryError
    from storage.inspection.directory_check import NotCheckable

    try:
        return command(arguments)
    except BrokenPipeError:
        discard_output()
        return UNUSABLE
    except (NotCheckable, DataDirectoryError) as error:
        say(f"triglot: {error}", sys.stderr)
    except OSError as error:
        say(f"triglot: {error.filename or 'disk'}: {error.strerror}", sys.stderr)
    return UNUSABLE


def _check(arguments: Arguments) -> int:
    from storage.inspection.directory_check import bytes_of, check, kind_of

    files = _filesystem()
    path = _without_slash(arguments.path)
    kind_of(files, path)
    lock = _locked(files, path)
    try:
        line = BytesOfLogs(arguments.progress, bytes_of(files, path))
        counts = dict.fromkeys(("error", "warning", "note"), 0)
        found = check(files, path, deep=arguments.deep, progress=line.more, now_ms=now_ms())
        for finding in found:
            counts[finding.severity] += 1
            line.clear()
            _show(finding, arguments)
        line.clear()
    finally:
        if lock is not None:
            lock.release()
    flawless = not counts["error"] and not counts["warning"]
    if arguments.json:
        print_json({"summary": {**counts, "bytes": line.done, "seconds": round(line.seconds(), 3)}})
    else:
        said = ", ".join(f"{count} {name}{'s'[: count != 1]}" for name, count in counts.items())
        say(f"{said}; {line.summary()}", sys.stdout)
    return FLAWLESS if flawless else FOUND


def _dump(arguments: Arguments) -> int:
    from storage.inspection.dump import DumpOptions, dump

    files = _filesystem()
    wanted = DumpOptions(
        records=arguments.records,
        values=arguments.values,
        first=arguments.first,
        last=arguments.last,
    )
    for path in arguments.paths:
        for row in dump(files, _without_slash(path), wanted):
            _show(row, arguments)
    return FLAWLESS


def _repair(arguments: Arguments) -> int:
    from storage.inspection.directory_check import bytes_of
    from storage.inspection.repair import repair

    files = _filesystem()
    path = _without_slash(arguments.path)
    lock = _locked(files, path)
    changes = left = 0
    try:
        line = BytesOfLogs(arguments.progress, bytes_of(files, path))
        for change in repair(files, path, apply=arguments.apply, progress=line.more):
            changes += not change.left
            left += change.left
            line.clear()
            _show(change, arguments)
        line.clear()
    finally:
        if lock is not None:
            lock.release()
    applied = arguments.apply
    if arguments.json:
        print_json({"summary": {"changes": changes, "left": left, "applied": applied}})
    elif applied or not changes:
        say(f"{changes} changes made, {left} things left", sys.stdout)
    else:
        say(
            f"{changes} changes to make, {left} things left; nothing was changed: --apply does it",
            sys.stdout,
        )
    return FOUND if left or (changes and not applied) else FLAWLESS


def _show(found: Finding | Row | Change, arguments: Arguments) -> None:
    if arguments.json:
        print_json(found.as_json())
    else:
        say(str(found), sys.stdout)


def _filesystem() -> Filesystem:
    from storage.disk import DiskFilesystem

    return DiskFilesystem()


def _locked(files: Filesystem, path: str) -> Lock | None:
    from storage.inspection.directory_check import locked

    return locked(files, path)


def _without_slash(path: str) -> str:
    import os

    return os.path.abspath(path)  # noqa: PTH100 - storage takes strings
