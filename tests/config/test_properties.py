"""Properties files are read as Java reads them.

What JAVA_READS holds was printed by java.util.Properties.load of JDK 17 for the same bytes.
"""

from __future__ import annotations

import pytest

from config.errors import ConfigError
from config.properties import parse_properties

JAVA_READS: list[tuple[bytes, dict[str, str]]] = [
    (b"a=1", {"a": "1"}),
    (b"a:1", {"a": "1"}),
    (b"a 1", {"a": "1"}),
    (b"a\t1", {"a": "1"}),
    (b"a\x0c1", {"a": "1"}),
    (b"  a = 1  ", {"a": "1  "}),
    (b"a==1", {"a": "=1"}),
    (b"a=:1", {"a": ":1"}),
    (b"a : = 1", {"a": "= 1"}),
    (b"a", {"a": ""}),
    (b"a=", {"a": ""}),
    (b"=1", {"": "1"}),
    (b":1", {"": "1"}),
    (b"a\\=b=1", {"a=b": "1"}),
    (b"a\\:b:c", {"a:b": "c"}),
    (b"a\\ b c", {"a b": "c"}),
    (b"#a=1", {}),
    (b"!a=1", {}),
    (b"  # a=1", {}),
    (b"a=1#x", {"a": "1#x"}),
    (b"a=1 # x", {"a": "1 # x"}),
    (b"a=\\#x", {"a": "#x"}),
    (b"a=1\\\n2", {"a": "12"}),
    (b"a=1\\\n   2", {"a": "12"}),
    (b"a=1\\\\\n2", {"2": "", "a": "1\\"}),
    (b"a=1\\\\\\\n2", {"a": "1\\2"}),
    (b"a=1\\\n#2", {"a": "1#2"}),
    (b"a=1\\\n\nb=2", {"a": "1", "b": "2"}),
    (b"a=1\\", {"a": "1"}),
    (b"a=1\\\r\n  2", {"a": "12"}),
    (b"a\\\n b=1", {"ab": "1"}),
    (b"#c\\\na=1", {"a": "1"}),
    (b"a=1\rb=2", {"a": "1", "b": "2"}),
    (b"a=1\r\n\r\nb=2", {"a": "1", "b": "2"}),
    (b"a=\\u0041\\u00e4", {"a": "A\xe4"}),
    (b"a=\\uD83D\\uDE00", {"a": "\U0001f600"}),
    (b'a=\\t\\n\\r\\f\\b\\q\\"', {"a": '\t\n\r\x0cbq"'}),
    (b"a=\\\\", {"a": "\\"}),
    (b"\\u0061=1", {"a": "1"}),
    (b"a=1\na=2", {"a": "2"}),
    (b"a=\xe4", {"a": "\xe4"}),
    (b"a\\\tb=1", {"a\tb": "1"}),
    (b"a\xa0b=1", {"a\xa0b": "1"}),
    (b"a=1\x0b", {"a": "1\x0b"}),
    (b"\n\n  \n a=1", {"a": "1"}),
    (b"a=\\", {"a": ""}),
    (b"a=b\\ c ", {"a": "b c "}),
    (b"a\\\\=1", {"a\\": "1"}),
    (b"a =\\ 1", {"a": " 1"}),
    (b"\\#a=1", {"#a": "1"}),
    (b"\\ =1", {" ": "1"}),
    (b"a:=1", {"a": "=1"}),
    (b"a= :1", {"a": ":1"}),
    (b"a=1\\\n", {"a": "1"}),
    (b"#\\u00zz\na=1", {"a": "1"}),
    (b"a=1\\\n\\\n2", {"a": "12"}),
    (b"a\\\n=1", {"a": "1"}),
    (b"a\\\n  \\\n b 1", {"ab": "1"}),
]

JAVA_REFUSES = [b"a=\\u00", b"a=\\u00zz"]


def read(data: bytes) -> dict[str, str]:
    return {entry.name: entry.text for entry in parse_properties(data, "file")}


@pytest.mark.parametrize(("data", "entries"), JAVA_READS)
def test_a_file_is_read_as_java_reads_it(data: bytes, entries: dict[str, str]) -> None:
    assert read(data) == entries


@pytest.mark.parametrize("data", JAVA_REFUSES)
def test_a_broken_unicode_escape_is_refused_with_its_line(data: bytes) -> None:
    with pytest.raises(ConfigError, match=r"server\.properties:3: a: "):
        parse_properties(b"\n# comment\n" + data, "server.properties")


def test_every_broken_escape_of_a_file_is_reported() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_properties(b"a=\\u1\nb=2\nc=\\uxyzw", "f")
    assert [problem.source for problem in caught.value.problems] == ["f:1", "f:3"]


def test_an_entry_has_the_line_it_begins_on() -> None:
    data = b"# one\na=1\\\n  2\n\r\nb=3\rc=4"
    lines = {entry.name: entry.line for entry in parse_properties(data, "f")}
    assert lines == {"a": 2, "b": 5, "c": 6}


def test_duplicates_are_kept_in_order_so_that_the_last_holds() -> None:
    entries = parse_properties(b"a=1\nb=2\na=3", "f")
    assert [(entry.name, entry.text, entry.line) for entry in entries] == [
        ("a", "1", 1),
        ("b", "2", 2),
        ("a", "3", 3),
    ]


def test_a_mark_of_utf_8_at_the_start_is_skipped() -> None:
    assert read(b"\xef\xbb\xbfnode.id=3") == {"node.id": "3"}
