"""Whether a socket has something to be read."""

from __future__ import annotations

import select
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import socket


def has_input(one: socket.socket, timeout_s: float) -> bool:
    """Whether there are bytes, or the end, within this time."""
    if sys.platform == "win32":
        return bool(select.select([one], (), (), timeout_s)[0])
    # Elsewhere `select` takes no descriptor above 1023.
    poll = select.poll()
    poll.register(one, select.POLLIN)
    return bool(poll.poll(timeout_s * 1000))
