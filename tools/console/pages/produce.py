"""One record, written to a topic by the user who fills in its form."""

from __future__ import annotations

from typing import TYPE_CHECKING

from client.errors import Failure
from client.producing import ProduceUnknown
from tools.console.pages.records import partitions_of
from tools.console.visit import Moved, Shown, WrongQuestion, number, require_writable
from tools.errors import NotDone
from tools.produce.sending import Sender

if TYPE_CHECKING:
    from collections.abc import Mapping

    from protocol.records.builder import HeaderPair
    from tools.console.visit import Visit

KINDS = ("text", "hex", "null")
HEADERS_MAX = 100


def form(visit: Visit) -> Shown:
    """The empty form. Raises NoSuchTopic, NotAllowed."""
    require_writable(visit)
    return _form(visit, "")


def produce(visit: Visit) -> Shown | Moved:
    """Write the record, and show it; the form again with what is wrong. Raises NoSuchTopic,
    NotAllowed."""
    require_writable(visit)
    name, given = visit.path["topic"], visit.query
    partitions = partitions_of(visit, name)
    try:
        chosen = given.get("partition", "")
        partition = None if chosen in ("", "any") else number(given, "partition", 0)
        record = (
            visit.now_ms,
            _content(given, "key"),
            _content(given, "value"),
            _headers(given.get("headers", "")),
        )
        with visit.client() as client:
            sender = Sender(client, name, partitions, codec=0, told=lambda _: None)
            sender.add([(partition, record)])
            sender.flush()
    except (Failure, NotDone, ProduceUnknown, WrongQuestion) as error:
        return _form(visit, str(error))
    ((written, where),) = sender.written.items()
    return Moved(f"/topics/{name}/records?partition={written}&offset={where.first_offset}")


def _form(visit: Visit, problem: str) -> Shown:
    name = visit.path["topic"]
    facts = {
        "topic": name,
        "partitions": partitions_of(visit, name),
        "kinds": KINDS,
        "given": visit.query,
        "problem": problem,
    }
    return Shown("produce.html", facts, 400 if problem else 200)


def _content(given: Mapping[str, str], name: str) -> bytes | None:
    """The bytes of a key or a value. Raises WrongQuestion."""
    kind, text = given.get(f"{name}_kind", KINDS[0]), given.get(name, "")
    if kind not in KINDS:
        raise WrongQuestion(f"{name}: wanted {', '.join(KINDS)}, found '{kind[:40]}'")
    if kind == "null":
        if text:
            raise WrongQuestion(f"{name}: it is to be null, and there is text for it")
        return None
    if name == "key" and not text:
        return None  # as of a producer that is given none
    if kind == "text":
        return _lines(text).encode("utf-8", "surrogatepass")
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise WrongQuestion(f"{name}: wanted pairs of hexadecimal digits, as 00 ff 10") from None


def _headers(text: str) -> tuple[HeaderPair, ...]:
    """A header a line, `name: value`. Raises WrongQuestion."""
    found = []
    for line in _lines(text).split("\n"):
        if not line.strip():
            continue
        name, colon, value = line.partition(":")
        if not colon or not name.strip():
            raise WrongQuestion(f"headers: wanted lines of 'name: value', found '{line[:40]}'")
        found.append((name.strip(), value.strip().encode("utf-8", "surrogatepass")))
    if len(found) > HEADERS_MAX:
        raise WrongQuestion(f"headers: {len(found)}, and a form takes {HEADERS_MAX}")
    return tuple(found)


def _lines(text: str) -> str:
    """With line ends as people mean them: browsers send all as CR LF."""
    return text.replace("\r\n", "\n")
