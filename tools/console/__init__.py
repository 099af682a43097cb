"""The console: pages for a browser about what is in a broker, made by a process beside it.

Not imported by other commands; `serve` names the module that its process runs.
"""

from __future__ import annotations

from importlib.util import find_spec

SERVED_BY = f"{__name__}.process"
"""The module of the process."""
NEEDS = ("jinja2", "starlette", "uvicorn")
"""The packages that come with the extra `console`."""


def missing_packages() -> str:
    """Why there can be no console, in one line; nothing if all that it needs is installed."""
    missing = [name for name in NEEDS if find_spec(name) is None]
    if not missing:
        return ""
    return f"the console needs pip install triglot[console] (there is no {', '.join(missing)})"
