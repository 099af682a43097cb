"""The process beside the broker that compacts logs: `python -m broker.background.cleaner_process`.

Compaction loops over records, and the broker's interpreter has better things to do. The broker
starts this process when there is work and talks to it in lines of JSON:

    in     {"plan": what to do (CleaningPlan.as_json), "bytes_per_second": a limit or null}
    out    {"group": a finished group (CleanedGroup)}                    any number of times
           {"cleaned_to": the next dirty offset, "stats": CleaningStats}  the end of a plan
           {"error": what went wrong}                                     likewise

One plan at a time is worked on. It ends when its input does, and when the broker dies, however
that happens: what it has not finished then, the broker's next start clears away.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import TYPE_CHECKING, Any

from broker.background.paced_files import PacedFilesystem
from broker.background.parent_process import die_with_parent, lines
from protocol.errors import KafkaError
from storage.cleaning.cleaning import Cleaning
from storage.cleaning.plan import CleaningPlan
from storage.disk import DiskFilesystem

if TYPE_CHECKING:
    from collections.abc import Iterator

NICE = 10
"""The broker's own work goes first where both want the same core."""


def main() -> int:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the broker's, who then ends us
    die_with_parent()
    if sys.platform != "win32":  # there it is started so
        os.nice(NICE)
    for line in lines():
        work = json.loads(line)
        for message in _answers(work["plan"], work["bytes_per_second"]):
            sys.stdout.write(json.dumps(message) + "\n")
            sys.stdout.flush()
    return 0


def _answers(plan: str, bytes_per_second: float | None) -> Iterator[dict[str, Any]]:
    """The messages for one plan."""
    files = PacedFilesystem(DiskFilesystem(), bytes_per_second)
    try:
        cleaning = Cleaning(files, CleaningPlan.from_json(plan))
        for group in cleaning.groups():
            yield {"group": group._asdict()}
        yield {"cleaned_to": cleaning.cleaned_to, "stats": cleaning.stats.as_dict()}
    except Exception as error:
        if not isinstance(error, OSError | KafkaError):  # a fault of ours
            sys.excepthook(type(error), error, error.__traceback__)
        yield {"error": f"{type(error).__name__}: {error}"}


if __name__ == "__main__":
    raise SystemExit(main())
