"""How the property tests run: the same examples each time, so that a failure is no surprise.

`--hypothesis-profile=long` looks for new ones instead.
"""

from __future__ import annotations

import os
import sys

from hypothesis import settings

# Where this is set, as in many containers, each of the hundreds of brokers and commands that the
# tests start would compile every module again, which takes longer than the rest of its start.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# No deadline per example: on a shared machine it would measure the neighbours.
settings.register_profile("quick", derandomize=True, deadline=None, database=None)
settings.register_profile("long", max_examples=5_000, deadline=None, print_blob=True)
settings.load_profile("quick")
