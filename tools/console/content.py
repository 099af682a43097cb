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


class Kept(NamedTuple):
    """The beginning of some bytes, as far as a page can show it, and how many they are."""

    start: bytes
    size: int


def kept(data: bytes | None) -> Kept | None:
    """The same, but for what is large: nobody holds more of it than a page shows."""
    return None if data is None else Kept(data[:SHOWN_BYTES], len(data))


class Content(NamedTuple):
    """What is shown of some bytes. `kind` is null, empty, json, text or hex; `preview` one line of
    it; `is_cut` says that `text` is not all."""

    kind: str
    size: int
    text: str
    preview: str
    is_cut: bool


def content(some: Kept | None, view: str = "auto", *, most: int = SHOWN_BYTES) -> Content:
    """Of these bytes, in one of VIEWS; as JSON, or text, only if they are. At most so many of them
    are shown, and in hexadecimal SHOWN_HEX_BYTES."""
    if some is None:
        return Content("null", 0, "", "", False)
    data, size = some
    if not size:
        return Content("empty", 0, "", "", False)
    if view != "hex":
        text = _text(data[:most], is_all=size <= most)
        if text is not None:
            is_cut = size > most
            preview = " ".join(text[: 4 * PREVIEW_CHARACTERS].split())[:PREVIEW_CHARACTERS]
            pretty = None if view == "text" or is_cut else indented(text)
            if pretty is not None:
                return Content("json", size, pretty, preview, False)
            return Content("text", size, text, preview, is_cut)
    hex_bytes = min(most, SHOWN_HEX_BYTES)
    rows = hexadecimal(data[:hex_bytes])
    preview = data[: PREVIEW_CHARACTERS // 4].hex(" ")
    return Content("hex", size, rows, preview, size > hex_bytes)


def _text(start: bytes, *, is_all: bool) -> str | None:
    """These bytes as text, if that is what they are."""
    try:
        text = start.decode()
    except UnicodeDecodeError as error:
        # The cut may have gone through a character.
        if is_all or error.start < len(start) - 3:
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
