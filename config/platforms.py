"""What the operating system offers, and the variable that has a broker do without it.

Linux has calls of its own that a broker is faster by: from file to socket, several buffers at a
position, syncs of the content alone. What is written for every system (macOS, Windows) does without
them. So does Linux with TRIGLOT_PORTABLE=1, which is how the tests see it.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

PORTABLE_VARIABLE = "TRIGLOT_PORTABLE"
"""No key: processes of ours have it from those that start them, before there are settings."""
SWITCHES = {"": False, "0": False, "1": True}


def wants_portable(environ: Mapping[str, str]) -> bool | None:
    """What the variable says; None where that is neither 0 nor 1."""
    return SWITCHES.get(environ.get(PORTABLE_VARIABLE, ""))


PORTABLE = sys.platform != "linux" or bool(wants_portable(os.environ))
"""Whether only what every system has is used."""
