"""A partition that goes from one process of a directory to another: closed here, opened there, and
not copied.

    nobody leads it -> closed, its checkpoints have its end -> another leads it -> opened from there

The two are told by the metadata log, and the second step is written when the first one is followed
(`broker.metadata.moves`). So never do two processes have a log open.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from storage.closing import CleanShutdown
from storage.layout import partition_directory
from storage.noted import Noted
from storage.share import LastStop

if TYPE_CHECKING:
    from storage.data_dir import DataDirectory
    from storage.reports import RecoveryReport
    from storage.settings import LogSettings
    from storage.steps import Steps
    from storage.topics import Topic


def closing(directory: DataDirectory, name: str, number: int) -> Steps[None]:
    """Close the log of a partition and note where it ends. Nobody may use it any more.

    Where the disk refuses, whoever opens it reads more of it, as after a crash.
    """
    log = directory.logs[name, number]
    if log.failed is None:
        shutdown = CleanShutdown(log)
        yield shutdown.sync
        shutdown.state()
    with suppress(OSError):
        yield from directory.noting()
    directory.let_go(name, number)


def opening(
    directory: DataDirectory,
    topic: Topic,
    number: int,
    settings: LogSettings,
    *,
    led_since: int,
    now_ms: int,
) -> Steps[list[RecoveryReport]]:
    """Open the log of a partition that another process has closed, or has left in a crash. Raises
    OSError."""
    key = (topic.name, number)
    last_stop = LastStop(was_clean=False, led_alone=True)
    noted = yield partial(Noted, directory.files, directory.path, led_since, last_stop)
    known = noted.of(key, topic.topic_id)
    found = directory.files.exists(f"{directory.path}/{partition_directory(*key)}")
    reports = directory.open_partition(topic, number, settings, known, found, now_ms)
    directory.checkpoints.taken_up(key, directory.logs[key], known)
    return reports
