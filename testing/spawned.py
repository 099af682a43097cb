"""A broker of a test in a process of its own that was not forked (`testing.spawn_server`).

The first line on its standard input has its settings; `testing.serving` says what follows.
"""

from __future__ import annotations

import gc
import json
import os
import sys


def main() -> None:
    """Run it, and end without waiting for the thread that reads."""
    code = 1
    try:
        words = json.loads(first_line(0))
        gc.disable()  # until it has started: nothing of what is imported is for the collector
        from testing.requests import Start
        from testing.serving import serve_until_told

        code = serve_until_told(Start(**words), lambda: 0, is_asked_for=True)
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def first_line(descriptor: int) -> bytes:
    """Of what may have more lines, which are somebody else's to read."""
    line = b""
    while not line.endswith(b"\n"):
        found = os.read(descriptor, 1)
        if not found:
            raise EOFError("the one who started this has ended")
        line += found
    return line


if __name__ == "__main__":
    main()
