"""What bytes look like: nothing is hidden, and nothing is other than it was."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tools.console.content import SHOWN_BYTES, SHOWN_HEX_BYTES, Content, content, indented, kept

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


def shown_as(data: bytes | None, view: str = "auto") -> Content:
    return content(kept(data), view)


@given(JSON)
def test_json_is_the_same_when_it_is_broken_into_lines(value: object) -> None:
    text = json.dumps([value])
    shown = indented(text)
    assert shown is not None
    assert json.loads(shown) == json.loads(text)


def test_tokens_of_json_stay_as_they_were_written() -> None:
    text = '{"a":1.0000000000000000000000001,"a":1E5,"b":"\\u0041 {x, y}"}'
    assert shown_as(text.encode()).text == (
        '{\n  "a": 1.0000000000000000000000001,\n  "a": 1E5,\n  "b": "\\u0041 {x, y}"\n}'
    )


@pytest.mark.parametrize(
    ("data", "kind", "text"),
    [
        (None, "null", ""),
        (b"", "empty", ""),
        (b'{"a": 1', "text", '{"a": 1'),
        (b"plain \xc3\xa4", "text", "plain \N{LATIN SMALL LETTER A WITH DIAERESIS}"),
        (b"\x00\x01ab", "hex", "00000000  00 01 61 62" + 36 * " " + "  ..ab"),
        (b"\xff\xfe", "hex", "00000000  ff fe" + 42 * " " + "  .."),
        (b"tab\tand\nline", "text", "tab\tand\nline"),
        (b"\x1b[31mred", "hex", "00000000  1b 5b 33 31 6d 72 65 64" + 24 * " " + "  .[31mred"),
    ],
)
def test_bytes_are_shown_as_what_they_are(data: bytes | None, kind: str, text: str) -> None:
    shown = shown_as(data)
    assert (shown.kind, shown.text) == (kind, text)


def test_a_hundred_megabytes_are_shown_by_their_beginning() -> None:
    data = b"a" * 100_000_000
    text, binary = shown_as(data), shown_as(bytes(len(data)))
    assert (text.size, len(text.text), text.is_cut) == (len(data), SHOWN_BYTES, True)
    assert kept(data) == (data[:SHOWN_BYTES], len(data))
    assert binary.is_cut
    assert len(binary.text) < 6 * SHOWN_HEX_BYTES


def test_a_character_that_the_cut_goes_through_is_left_out() -> None:
    shown = shown_as("\N{SNOWMAN}".encode() * SHOWN_BYTES)
    assert (shown.kind, set(shown.text)) == ("text", {"\N{SNOWMAN}"})


def test_json_that_is_deep_beyond_all_measure_is_text() -> None:
    for depth in (900, 100_000):
        assert shown_as(b"[" * depth + b"]" * depth).kind == "text"


def test_json_is_shown_as_text_or_hexadecimal_where_that_is_asked_for() -> None:
    assert shown_as(b'{"a":1}', "text").text == '{"a":1}'
    assert shown_as(b'{"a":1}', "hex").kind == "hex"
