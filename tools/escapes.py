"""Text with escapes, as it is typed where a shell takes the character itself: `\t` is a tab."""

from __future__ import annotations

import re

ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|.)", re.DOTALL)


def unescaped(text: str) -> bytes:
    r"""Its bytes in UTF-8, with \n, \t, \r, \0, \\ and \xNN as the bytes that they stand for.

    Raises ValueError for any other.
    """
    parts: list[bytes] = []
    position = 0
    for match in _ESCAPE.finditer(text):
        parts.append(text[position : match.start()].encode("utf-8", "surrogateescape"))
        found = match[1]
        if len(found) == 3:
            parts.append(bytes([int(found[1:], 16)]))
        elif found in ESCAPES:
            parts.append(ESCAPES[found])
        else:
            known = " ".join(f"\\{name}" for name in ESCAPES)
            raise ValueError(f"'\\{found}' is no escape, there are {known} and \\xNN")
        position = match.end()
    parts.append(text[position:].encode("utf-8", "surrogateescape"))
    if parts[-1].endswith(b"\\"):
        raise ValueError("a single \\ stands at the end: write \\\\")
    return b"".join(parts)
