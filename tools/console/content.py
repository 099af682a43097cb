"""Bytes of keys, values and headers, as people read them: JSON, text, or hexadecimal.

What is shown of one is bounded, and nothing is made prettier than it is: JSON is broken into lines
and its tokens stay as they were written.
"""

from __future__ import annotations

import json
import re
from typing import NamedTuple

SHOWN_BYTES = 65_536
SHOWN_HEX_BYTES = 4_096
INDENTED_CHARACTERS_MAX = 4 * SHOWN_BYTES
PREVIEW_CHARACTERS = 160
HEX_ROW = 16
VIEWS = ("auto", "json", "text", "hex")

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")


class Content(NamedTuple):
    """What is shown of some bytes. `kind` is null, empty, json, text or hex; `preview` one line of
    it; `is_cut` says that `text` is not all."""

    kind: str
    size: int
    text: str
    preview: str
    is_cut: bool


def content(data: bytes | None, view: str = "auto", *, most: int | None = None) -> Content:
    """Of these bytes, in one of VIEWS; as JSON, or text, only if they are. At most so many of them
    are shown; without, SHOWN_BYTES, and in hexadecimal SHOWN_HEX_BYTES."""
    if data is None:
        return Content("null", 0, "", "", False)
    if not data:
        return Content("empty", 0, "", "", False)
    if view != "hex":
        text_bytes = most or SHOWN_BYTES
        text = _text(data, text_bytes)
        if text is not None:
            is_cut = len(data) > text_bytes
            preview = " ".join(text[: 4 * PREVIEW_CHARACTERS].split())[:PREVIEW_CHARACTERS]
            pretty = None if view == "text" or is_cut else indented(text)
            if pretty is not None:
                return Content("json", len(data), pretty, preview, False)
            return Content("text", len(data), text, preview, is_cut)
    hex_bytes = most or SHOWN_HEX_BYTES
    rows = hexadecimal(data[:hex_bytes])
    preview = data[: PREVIEW_CHARACTERS // 4].hex(" ")
    return Content("hex", len(data), rows, preview, len(data) > hex_bytes)


def _text(data: bytes, most: int) -> str | None:
    """So many bytes of its beginning as text, if that is what it is."""
    start = data[:most]
    try:
        text = start.decode()
    except UnicodeDecodeError as error:
        # The cut may have gone through a character.
        if len(data) <= most or error.start < most - 3:
            return None
        text = start[: error.start].decode()
    return None if _CONTROL.search(text) else text


def indented(text: str) -> str | None:
    """JSON with a line for each member, its tokens unchanged; None for what is no JSON, or grows
    beyond all measure by that."""
    if text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return None
    parts: list[str] = []
    size = depth = 0
    opened = ""
    for token in _TOKEN.findall(text):
        if token in "]}":
            depth -= 1
            part = token if opened else "\n" + "  " * depth + token
        elif opened:
            part = "\n" + "  " * depth + token
        else:
            part = token
        opened = ""
        if token in "{[":
            depth += 1
            opened = token
        elif token == ",":
            part = ",\n" + "  " * depth
        elif token == ":":
            part = ": "
        parts.append(part)
        size += len(part)
        if size > INDENTED_CHARACTERS_MAX:
            return None
    return "".join(parts)


def hexadecimal(data: bytes) -> str:
    """Rows of a position, sixteen bytes, and the characters among them."""
    rows = []
    for position in range(0, len(data), HEX_ROW):
        row = data[position : position + HEX_ROW]
        letters = "".join(chr(one) if 32 <= one < 127 else "." for one in row)
        rows.append(f"{position:08x}  {row.hex(' '):<{3 * HEX_ROW - 1}}  {letters}")
    return "\n".join(rows)
