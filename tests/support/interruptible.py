"""Children that an interruption (SIGINT) ends as it does at a terminal."""

from __future__ import annotations

import signal


def take_interrupts() -> None:
    """For `preexec_fn`: a shell that runs the tests in the background has interruptions ignored,
    which children inherit."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
