"""Saved conversations, printed and held again."""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING

from broker.faults.proxy.frames import RequestHead, decoded_request, head_of
from protocol.errors import Malformed
from protocol.header import API_VERSIONS_KEY
from protocol.registry import APIS
from tools.printing import counted, print_json, print_lines
from tools.tap.conversation import ANSWER, REQUEST, read_conversation
from tools.tap.words import Words

if TYPE_CHECKING:
    from argparse import Namespace as Arguments
    from collections.abc import Sequence

    from client.connection import Connection
    from tools.cluster import Cluster
    from tools.tap.conversation import Entry

HANDSHAKE_KEY, PRODUCE_KEY = 17, 0
ADDRESS = re.compile(r"host: [^,}]*, port: \d+")


def fault_of_apis(names: Sequence[str]) -> str:
    """What is wrong with names of APIs; "" is nothing."""
    known = [api.name for api in APIS.values()]
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            return f"there is no API '{name}'{f', did you mean {near[0]}?' if near else ''}"
    return ""


def run_show(arguments: Arguments) -> None:
    """The entries of a file; texts are made anew where frames are there. Raises NotDone."""
    words = Words(is_full=arguments.full)
    for entry in read_conversation(arguments.file):
        told = _told(entry, words)
        print_lines([told.as_json(with_frame=False) if arguments.json else told.line()])


def run_replay(cluster: Cluster, arguments: Arguments) -> None:
    """The requests of a file, sent again. Raises NotDone, Failure."""
    words = Words(is_full=arguments.full)
    answers: dict[tuple[int, int], str] = {}
    requests: list[Entry] = []
    for entry in read_conversation(arguments.file):
        if entry.what == REQUEST and entry.frame is not None:
            requests.append(entry)
        elif entry.what == ANSWER:
            told = _told(entry, words)
            answers[entry.connection, entry.correlation_id] = told.text
    connections: dict[int, Connection] = {}
    sent = same = 0
    try:
        for entry in requests:
            connection = connections.get(entry.connection)
            if connection is None or not connection.usable:
                connection = connections[entry.connection] = cluster.connect(entry.client.encode())
            now, is_sent = _sent(connection, entry, words)
            then = answers.get((entry.connection, entry.correlation_id), "")
            sent += is_sent
            is_same = is_sent and _without_addresses(then) == _without_addresses(now)
            same += is_same
            _print(entry, then, now, (is_sent, is_same), as_json=arguments.json)
    finally:
        for connection in connections.values():
            connection.close()
    if not arguments.json:
        left_out = len(requests) - sent
        print_lines([
            f"{counted(sent, 'request')} sent again, {counted(same, 'answer')} as before, "
            f"{sent - same} other, {left_out} not sent"
        ])  # fmt: skip


def _told(entry: Entry, words: Words) -> Entry:
    """With its text as this release tells it."""
    if entry.frame is None:
        return entry
    if entry.what == REQUEST:
        return entry._replace(text=words.request(head_of(entry.frame), entry.frame))
    return entry._replace(text=words.answer(_head(entry), entry.frame))


def _head(entry: Entry) -> RequestHead | None:
    """The header of the request that an answer answers, as far as that is needed."""
    api = next((one for one in APIS.values() if one.name == entry.api), None)
    if api is None or not api.min_version <= entry.version <= api.max_version:
        return None
    return RequestHead(api, entry.version, entry.correlation_id, entry.client, 0)


def _sent(connection: Connection, entry: Entry, words: Words) -> tuple[str, bool]:
    """The answer to a request that is sent again; or why it is not sent, and False."""
    assert entry.frame is not None
    head = head_of(entry.frame)
    if head is None:
        return "it is not understood", False
    try:
        message = decoded_request(head, entry.frame)
    except Malformed as error:
        return f"it is not understood: {error}", False
    if head.api.key == HANDSHAKE_KEY:
        return "logins are not sent again", False
    if head.api.key == PRODUCE_KEY and getattr(message, "acks", -1) == 0:
        return "it wants no answer (acks=0)", False
    kind, version = head.api.request, head.version
    if head.api.key != API_VERSIONS_KEY and not connection.offers(kind, version, version):
        return f"{connection.address} does not offer {head.api.name} v{version}", False
    wait_s = getattr(message, "max_wait_ms", 0) / 1000
    answer = connection.receive(connection.send(message, version), head.api.response, wait_s=wait_s)
    return words.message(answer, version), True


def _without_addresses(text: str) -> str:
    """Those of a tap are its own."""
    return ADDRESS.sub("", text)


def _print(entry: Entry, then: str, now: str, outcome: tuple[bool, bool], *, as_json: bool) -> None:
    """`outcome` is whether it was sent, and whether the answer is the same."""
    is_sent, is_same = outcome
    if as_json:
        facts = {"client": entry.client, "api": entry.api, "version": entry.version}
        told = {"then": then, "now": now} if is_sent else {"then": then, "not_sent": now}
        print_json({**facts, **told, "same": is_same})
        return
    api = f"#{entry.connection} {entry.api} v{entry.version}"
    if not is_sent:
        print_lines([f"- {api} {now}"])
    elif is_same:
        print_lines([f"= {api} {now}"])
    else:
        print_lines([f"! {api} then {then or 'no answer'} now {now}"])
