"""Secrets that were given where every user of this machine can see them: said at the start.

Files of private keys and keytabs that others may read are refused. A settings file is not: one that
was written for Kafka starts.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from config.broker import BrokerSettings

ON_THE_COMMAND_LINE = "the command line, which the list of processes shows"


def exposed_settings(settings: BrokerSettings, secret_keys: Sequence[str]) -> Iterator[str]:
    """Sentences on where these keys were given, none of them with a value."""
    by_place: dict[str, list[str]] = {}
    for name in secret_keys:
        path, colon, line = settings.layers.static[name].source.rpartition(":")
        place = path if colon and line.isdigit() else settings.layers.static[name].source
        by_place.setdefault(place, []).append(name)
    for place, names in by_place.items():
        what = ", ".join(sorted(names))
        if place == "--set":
            yield f"{what}: given on {ON_THE_COMMAND_LINE}; put it into a file (--config)"
        else:
            yield from exposed_file(place, what)


def may_be_changed(path: str) -> bool:
    """Whether every user of this machine can write the file."""
    try:
        mode = os.stat(path).st_mode  # noqa: PTH116 - as below
    except OSError:
        return False
    return stat.S_ISREG(mode) and bool(mode & stat.S_IWOTH)


def exposed_file(path: str, content: str) -> Iterator[str]:
    """A sentence if every user of this machine can read or write the file, which has `content`."""
    try:
        mode = os.stat(path).st_mode  # noqa: PTH116 - of one file, at the start
    except OSError:  # a variable of the environment, or a file that is gone
        return
    if stat.S_ISREG(mode) and mode & (stat.S_IROTH | stat.S_IWOTH):
        yield (
            f"{path} has {content} and can be read or written by every user of this machine; "
            f"chmod o-rwx {path}"
        )
