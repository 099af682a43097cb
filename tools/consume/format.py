r"""Records as bytes to print, by a format such as `%p@%o %k = %s\n`, or as JSON."""

from __future__ import annotations

from base64 import b64encode
from json.encoder import encode_basestring as quoted
from typing import TYPE_CHECKING

from broker.clock import utc_text
from protocol.records.record_rows import HEADERS, KEY, OFFSET, TIMESTAMP_MS, VALUE
from tools.escapes import unescaped

if TYPE_CHECKING:
    from collections.abc import Callable

    from client.cluster import TopicPartition
    from protocol.records.record import RecordHeaders
    from protocol.records.record_rows import Row

    Rendered = Callable[[list[Row]], bytes]
    Renderer = Callable[[TopicPartition], Rendered]
    """Of a partition, what makes bytes of its records."""

DEFAULT = r"%s\n"


def renderer(template: str | None, *, null: str = "", as_json: bool = False) -> Renderer:
    """Raises ValueError for a format that has what is not known."""
    if as_json:
        return _json_lines
    nothing = null.encode("utf-8", "surrogateescape")
    pieces = _pieces(DEFAULT if template is None else template)
    if pieces == [b"", "s", b"\n"]:
        return lambda _: _value_line(nothing)
    return lambda place: _by_pieces(_filled(pieces, place), nothing)


def _value_line(nothing: bytes) -> Rendered:
    """What nearly always is asked for, in the shortest way."""

    def rendered(rows: list[Row]) -> bytes:
        values = [nothing if value is None else value for _, _, _, value, _ in rows]
        return b"\n".join([*values, b""])

    return rendered


def _pieces(template: str) -> list[bytes | str]:
    """Bytes to print, and between them the letters of fields. Raises ValueError."""
    text, *rest = template.split("%")
    pieces: list[bytes | str] = [unescaped(text)]
    skip = False
    for number, part in enumerate(rest):
        if skip:
            skip = False
            pieces.append(unescaped(part))
        elif not part and number + 1 < len(rest):
            pieces.append(b"%")
            skip = True
        elif part[:1] in FIELDS or part[:1] in OF_PLACE:
            pieces += (part[0], unescaped(part[1:]))
        else:
            known = " ".join(f"%{name}" for name in (*FIELDS, *OF_PLACE, "%"))
            raise ValueError(f"'%{part[:1]}' is not known, wanted {known}")
    return pieces


def _filled(pieces: list[bytes | str], place: TopicPartition) -> list[bytes | str]:
    """With topic and partition as the bytes that they are."""
    return [
        OF_PLACE[piece](place) if isinstance(piece, str) and piece in OF_PLACE else piece
        for piece in pieces
    ]


def _by_pieces(pieces: list[bytes | str], nothing: bytes) -> Rendered:
    def constant(piece: bytes) -> Callable[[Row], bytes | None]:
        return lambda _: piece

    made = [constant(one) if isinstance(one, bytes) else FIELDS[one] for one in pieces if one]

    def rendered(rows: list[Row]) -> bytes:
        parts = [make(row) for row in rows for make in made]
        return b"".join([nothing if part is None else part for part in parts])

    return rendered


def _size(content: bytes | None) -> bytes:
    return b"%d" % (-1 if content is None else len(content))


def _headers(headers: RecordHeaders) -> bytes:
    return b",".join(
        b"%b=%b" % (name.encode("utf-8", "surrogateescape"), content or b"")
        for name, content in headers
    )


FIELDS: dict[str, Callable[[Row], bytes | None]] = {
    "s": lambda row: row[VALUE],
    "k": lambda row: row[KEY],
    "h": lambda row: _headers(row[HEADERS]),
    "o": lambda row: b"%d" % row[OFFSET],
    "T": lambda row: b"%d" % row[TIMESTAMP_MS],
    "D": lambda row: utc_text(row[TIMESTAMP_MS]).encode(),
    "S": lambda row: _size(row[VALUE]),
    "K": lambda row: _size(row[KEY]),
}
OF_PLACE: dict[str, Callable[[TopicPartition], bytes]] = {
    "t": lambda place: place.topic.encode(),
    "p": lambda place: b"%d" % place.partition,
}


def _json_lines(place: TopicPartition) -> Rendered:
    """The fields in a fixed order; only what is a text has to go through a library for each."""
    start = f'{{"topic": {quoted(place.topic)}, "partition": {place.partition}, "offset": '

    def line(row: Row) -> str:
        offset, timestamp_ms, key, value, headers = row
        told = f', "headers": [{_headers_json(headers)}]' if headers else ""
        return (
            f'{start}{offset}, "timestamp_ms": {timestamp_ms}, {_content("key", key)}, '
            f"{_content('value', value)}{told}}}\n"
        )

    return lambda rows: "".join(map(line, rows)).encode()


def _headers_json(headers: RecordHeaders) -> str:
    return ", ".join(
        f'{{"name": {quoted(_text(name))}, {_content("value", content)}}}'
        for name, content in headers
    )


def _text(name: str) -> str:
    """A name that is not UTF-8 has bytes in it that no JSON can have."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _content(name: str, content: bytes | None) -> str:
    """As text if it is UTF-8, else as base64 under another name."""
    if content is None:
        return f'"{name}": null'
    try:
        return f'"{name}": {quoted(content.decode())}'
    except UnicodeDecodeError:
        return f'"{name}_base64": "{b64encode(content).decode()}"'
