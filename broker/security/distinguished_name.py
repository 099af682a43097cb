"""The subject of a certificate as a text, character for character as Java writes it.

Rules of principals and access rules are made of these texts, so they must be the same as with
Kafka: the last part first, nine short names (RFC 2253), all other attributes as numbers with their
value in hexadecimal digits. OpenSSL's text of a name cannot be turned into that, so the bytes are
read.
"""

from __future__ import annotations

from typing import NamedTuple

SHORT_NAMES = {
    bytes.fromhex("550403"): "CN",
    bytes.fromhex("550406"): "C",
    bytes.fromhex("550407"): "L",
    bytes.fromhex("550408"): "ST",
    bytes.fromhex("550409"): "STREET",
    bytes.fromhex("55040a"): "O",
    bytes.fromhex("55040b"): "OU",
    bytes.fromhex("0992268993f22c640119"): "DC",
    bytes.fromhex("0992268993f22c640101"): "UID",
}
"""By the encoded object identifiers."""
ENCODINGS = {
    0x0C: "utf-8",
    0x13: "latin-1",
    0x14: "latin-1",
    0x16: "latin-1",
    0x1B: "latin-1",
    0x1C: "utf-32-be",
    0x1E: "utf-16-be",
}
"""Of the strings of ASN.1, by their tags: UTF8, Printable, T61, IA5, General, Universal, BMP."""
ESCAPED = ',=+<>;"\\'
SEQUENCE, SET, OID = 0x30, 0x31, 0x06
VERSION = 0xA0
FIELDS_BEFORE_THE_SUBJECT = 4
"""Serial number, algorithm, issuer and validity."""


class Element(NamedTuple):
    """One element of DER: its tag, its content, and all of it."""

    tag: int
    content: bytes
    whole: bytes


def subject_of(certificate: bytes) -> str:
    """The subject of a certificate in DER. Raises ValueError if it is none."""
    fields = elements(one(elements(one(elements(certificate), SEQUENCE).content), SEQUENCE).content)
    if fields and fields[0].tag == VERSION:
        del fields[0]
    if len(fields) <= FIELDS_BEFORE_THE_SUBJECT:
        raise ValueError("a certificate without a subject")
    subject = fields[FIELDS_BEFORE_THE_SUBJECT]
    parts = [
        "+".join(_attribute(elements(attribute.content)) for attribute in elements(part.content))
        for part in elements(subject.content)
    ]
    return ",".join(reversed(parts))


def elements(data: bytes) -> list[Element]:
    """The elements of DER that follow each other in these bytes. Raises ValueError."""
    found = []
    position = 0
    while position < len(data):
        start = position
        if position + 2 > len(data):
            raise ValueError("an element of DER is cut")
        tag, size = data[position], data[position + 1]
        position += 2
        if size >= 0x80:
            count = size & 0x7F
            if not 0 < count <= 4:
                raise ValueError("a length that DER does not have")
            size = int.from_bytes(data[position : position + count], "big")
            position += count
        end = position + size
        if end > len(data):
            raise ValueError("an element of DER is cut")
        found.append(Element(tag, data[position:end], data[start:end]))
        position = end
    return found


def one(found: list[Element], tag: int) -> Element:
    """The first of these elements, which has to have this tag. Raises ValueError."""
    if not found or found[0].tag != tag:
        raise ValueError(f"an element of DER with the tag {tag:#x} was wanted")
    return found[0]


def _attribute(type_and_value: list[Element]) -> str:
    kind = one(type_and_value, OID).content
    if len(type_and_value) != 2:
        raise ValueError("an attribute without a value")
    value = type_and_value[1]
    name = SHORT_NAMES.get(kind)
    encoding = ENCODINGS.get(value.tag)
    if name is None or encoding is None:
        return f"{name or _dotted(kind)}=#{value.whole.hex()}"
    return f"{name}={_escaped(value.content.decode(encoding))}"


def _dotted(encoded: bytes) -> str:
    numbers = []
    number = 0
    for byte in encoded:
        number = number << 7 | byte & 0x7F
        if byte < 0x80:
            numbers.append(number)
            number = 0
    if not numbers:
        raise ValueError("an empty object identifier")
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))


def _escaped(text: str) -> str:
    escaped = "".join(f"\\{letter}" if letter in ESCAPED else letter for letter in text)
    if escaped.startswith("#"):
        return "\\" + escaped
    inner = escaped.strip(" ")
    if not inner:
        return "\\ " * len(escaped)
    before, _, after = escaped.partition(inner)
    return "\\ " * len(before) + inner + "\\ " * len(after)
