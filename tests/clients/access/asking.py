"""Asks a broker every question in the name of every user; each answer becomes a line."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from protocol.errors import ErrorCode
from protocol.messages.delete_topics import DeleteTopicsRequest
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.init_producer_id import InitProducerIdRequest
from protocol.messages.offset_commit import OffsetCommitRequest
from protocol.registry import APIS
from protocol.schema import ZERO_UUID, Struct
from tests.clients.access.questions import ID, QUESTIONS, Question, new_topic
from tests.clients.access.servers import Clients
from tests.clients.access.users import USERS
from tests.support.wire_client import ConnectionClosed

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.clients.access.servers import Server
    from tests.support.caller import Caller

    Told = dict[str, dict[str, str]]
    """The answers by the title of the question and the user."""

TOPICS = ("t", "u", "t-doomed")
GROUPS = ("g", "h")
MAKERS = {3, 19, 20}
"""Keys of the APIs that make topics or remove them."""
SHOWN = {
    "name", "topic", "topic_name", "group_id", "resource_name", "transactional_id", "key",
    "topic_id", "topic_authorized_operations", "cluster_authorized_operations",
    "authorized_operations", "next_cursor",
}  # fmt: skip
LATER = {
    ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR, ErrorCode.CONCURRENT_TRANSACTIONS,
}  # fmt: skip
NOT_TOLD = -(2**31)
OTHER_TOPICS = "__"
"""How topics begin that differ from broker to broker."""


def tell_all(server: Server, questions: Iterable[Question] = QUESTIONS) -> Told:
    """All answers; of those questions alone whose versions are offered."""
    clients = Clients(server)
    try:
        _prepare(clients.administrator)
        told = {}
        for question in questions:
            if question.version in clients.offered.get(question.key, ()):
                told[question.title] = {user: _told(question, user, clients) for user in USERS}
                if question.key in MAKERS:
                    _put_back(clients.administrator)
        return told
    finally:
        clients.close()


def _told(question: Question, user: str, clients: Clients) -> str:
    if question.key in MAKERS:
        _put_back(clients.administrator)
    ids = _ids(clients.administrator, question)
    client = clients.users[user]
    for _ in range(100):
        request = _build(APIS[question.key].request, question.fields, ids)
        try:
            answer = client.call(request, question.version)
        except ConnectionClosed:
            raise AssertionError(f"{question.title} by {user}: the connection is gone") from None
        names = {topic_id: name for name, topic_id in ids.items()}
        said = describe(answer, names)
        if not any(code.name in said for code in LATER):
            return said
        time.sleep(0.1)
    return said


def _ids(administrator: Caller, question: Question) -> dict[str, bytes]:
    if ID not in repr(question.fields):
        return {}
    return {
        **{name: administrator.topic_id(name) for name in TOPICS},
        "nothing": b"0123456789abcdef",
    }


def _put_back(administrator: Caller) -> None:
    """The topics are as they were before others asked. Apache Kafka may tell of one for a while
    that is gone already: what it answers to the change counts."""
    administrator.call(DeleteTopicsRequest(topic_names=["t-new"], timeout_ms=9000), 5)
    _wait_until(administrator, "t-new", there=False)
    fields = {"topics": [new_topic("t-doomed")]}
    (made,) = administrator.call(_build(APIS[19].request, fields, {}), 7).topics
    if made.error_code == ErrorCode.NONE:
        _wait_until_has(administrator, "t-doomed", made.topic_id)


def _wait_until_has(administrator: Caller, name: str, topic_id: bytes) -> None:
    for _ in range(300):
        if administrator.topic_id(name) == topic_id:
            return
        time.sleep(0.02)
    raise AssertionError(f"{name} does not become what was made")


def _wait_until(administrator: Caller, name: str, *, there: bool) -> None:
    for _ in range(300):
        if (administrator.describe(name).error_code == ErrorCode.NONE) is there:
            return
        time.sleep(0.02)
    raise AssertionError(f"{name} is {'not ' if there else ''}there")


def _prepare(administrator: Caller) -> None:
    """Topics, offsets of groups, and a transactional id."""
    for name in TOPICS:
        administrator.create_topic(name)
        _wait_until(administrator, name, there=True)
    offset = {"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}
    for group in GROUPS:
        fields: dict[str, Any] = {
            "group_id": group,
            "topics": [{"name": name, "partitions": [offset]} for name in ("t", "u")],
        }
        _until_done(administrator, OffsetCommitRequest, fields, 8)
    for name in ("x", "y"):
        fields = {"transactional_id": name, "transaction_timeout_ms": 9000}
        _until_done(administrator, InitProducerIdRequest, fields, 3)


def _until_done(administrator: Caller, kind: Any, fields: dict[str, Any], version: int) -> None:
    # Whoever looks for the coordinator has its topic made.
    for key_type, key in ((0, "g"), (1, "x")):
        administrator.call(FindCoordinatorRequest(key=key, key_type=key_type), 3)
    said = ""
    for _ in range(300):
        said = describe(administrator.call(_build(kind, fields, {}), version), {})
        if not any(code.name in said for code in LATER):
            return
        time.sleep(0.1)
    raise AssertionError(said)


def _build(kind: Any, fields: dict[str, Any], ids: dict[str, bytes]) -> Any:
    """A message, or a part of one, of its fields."""
    declared = {field.name: field for field in kind._fields}
    return kind(**{name: _value(declared[name], value, ids) for name, value in fields.items()})


def _value(field: Any, value: Any, ids: dict[str, bytes]) -> Any:
    kind = field.struct or (field.item and field.item.struct)
    if isinstance(value, list):
        return [_build(kind, one, ids) if isinstance(one, dict) else one for one in value]
    if isinstance(value, str) and value.startswith(ID):
        return ids[value.removeprefix(ID)]
    return value


def describe(answer: Struct, names: dict[bytes, str]) -> str:
    """Codes and names of an answer, whatever it is."""
    return " ".join(_parts(answer, names)) or "nothing"


def _parts(part: Struct, names: dict[bytes, str]) -> list[str]:
    found = []
    for field in part._fields:
        name, value = field.name, getattr(part, field.name)
        if name.endswith("error_code"):
            found.append(ErrorCode(value).name)
        elif name == "configs" and isinstance(value, list | None) and name not in SHOWN:
            found.append("no configs" if not value else "configs")
        elif isinstance(value, list):
            found += _elements(value, names, field.name)
        elif isinstance(value, Struct):
            inner = " ".join(_parts(value, names))
            found += [f"{name}({inner})"] if inner else []
        elif name == "topic_id":
            if value != ZERO_UUID and value in names:
                found.append(f"id:{names[value]}")
        elif name in SHOWN and value not in (None, "", NOT_TOLD):
            found.append(f"{value}" if isinstance(value, str) else f"{name}={value:#x}")
    return found


def _elements(values: list[Any], names: dict[bytes, str], field: str) -> list[str]:
    told = []
    for value in values:
        if not isinstance(value, Struct):
            continue
        if str(getattr(value, "name", "") or "").startswith(OTHER_TOPICS):
            continue
        inner = " ".join(_parts(value, names))
        if inner:
            told.append(f"({inner})")
    return sorted(told)
