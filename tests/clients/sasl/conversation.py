"""One connection of a script, and the steps of which scripts are made.

A step sends something and gives a line that tells what came back: codes, texts and tokens, less
what is made anew each time. A connection that ends where an answer is wanted tells `closed`.
"""

from __future__ import annotations

import base64
import struct
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple

from protocol.errors import ErrorCode
from protocol.registry import APIS
from tests.clients.sasl.servers import PAST_SHORT_S, SALT, add_users
from tests.support.secured import ScramClient, send_token
from tests.support.wire_client import ConnectionClosed, WireClient

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.clients.sasl.servers import Server

CLOSED, SILENT = "closed", "no answer"
PATIENCE_S = 20.0
SILENCE_S = 2.0
"""A broker that has not ended a connection by then, where one may, will not."""
AT_A_TIME = 8
PRODUCE, METADATA, API_VERSIONS, SASL_AUTHENTICATE = 0, 3, 18, 36


class Conversation:
    """A connection, and what a client remembers while it authenticates by SCRAM."""

    def __init__(self, client: WireClient) -> None:
        self.client = client
        self.scram = ScramClient("SCRAM-SHA-256", "alice", "alice-secret")
        self.challenge = b""


class Step(NamedTuple):
    """Something that is sent, and how titles call it."""

    name: str
    take: Callable[[Conversation], str]


class Script(NamedTuple):
    """Steps on one connection to a listener."""

    title: str
    listener: str
    steps: tuple[Step, ...]


def tell_all(server: Server, scripts: Sequence[Script]) -> dict[str, list[str]]:
    """What each script tells, by its title. A few are told at a time: some wait."""
    add_users(server)
    with ThreadPoolExecutor(AT_A_TIME) as threads:
        told = threads.map(lambda script: tell(server, script), scripts)
        return dict(zip((script.title for script in scripts), told, strict=True))


def tell(server: Server, script: Script) -> list[str]:
    """What each step tells, up to the end of the connection."""
    told = []
    with WireClient(server.host, server.ports[script.listener], timeout_s=PATIENCE_S) as client:
        conversation = Conversation(client)
        for step in script.steps:
            try:
                told.append(step.take(conversation))
            except ConnectionClosed:
                told.append(CLOSED)
                break
            except TimeoutError:
                told.append(SILENT)
                break
    return told


# Requests.


def request(key: int, version: int, **fields: Any) -> Step:
    """A request of any version; one that we do not declare has the body of the newest."""
    api = APIS[key]

    def take(conversation: Conversation) -> str:
        client = conversation.client
        known = min(version, api.max_version)
        frame = bytearray(client.frame(api.request(**fields), known, 7))
        frame[6:8] = struct.pack(">h", version)
        client.send_raw(bytes(frame))
        answer = client.recv_frame()
        assert struct.unpack_from(">i", answer)[0] == 7
        if version > api.max_version:
            return f"{ErrorCode(struct.unpack_from('>h', answer, 4)[0]).name}, of another version"
        header = 4 + (version >= api.first_flexible and key != API_VERSIONS)
        return _described(key, api.response.decode(version, answer[header:]), conversation)

    return Step(f"{api.name} v{version}", take)


def _described(key: int, found: Any, conversation: Conversation) -> str:
    if key == METADATA:
        return f"{len(found.brokers)} brokers"
    if key == PRODUCE:
        return f"{len(found.responses)} topics"
    parts = [ErrorCode(found.error_code).name]
    if key == API_VERSIONS:
        parts += ["APIs"] if found.api_keys else []
    elif key == SASL_AUTHENTICATE:
        parts += [repr(found.error_message)]
        parts += [described_token(bytes(found.auth_bytes), conversation)]
        if found.session_lifetime_ms:
            parts += ["for a while"]
    else:
        parts += sorted(found.mechanisms)
    return " ".join(part for part in parts if part)


def described_token(token: bytes, conversation: Conversation) -> str:
    """A token of the broker's, less nonces and signatures."""
    if token.startswith(b"r="):
        conversation.challenge = token
        salt, iterations = token.split(b",s=")[1].split(b",i=")
        known = base64.b64decode(salt).startswith(SALT)
        return f"challenge{'' if known else ', made up'}, i={iterations.decode()}"
    if token.startswith(b"v="):
        return "proof" if conversation.scram.is_from_the_server(token) else "another proof"
    return repr(token) if token else ""


def handshake(mechanism: str, version: int = 1) -> Step:
    step = request(17, version, mechanism=mechanism)
    return Step(f"{step.name} {mechanism}", step.take)


def api_versions(version: int) -> Step:
    return request(
        API_VERSIONS, version, client_software_name="script", client_software_version="1"
    )


def metadata() -> Step:
    return request(METADATA, 9, topics=[])


# Tokens. What makes one is given the conversation, and is called when it is sent.


def token(name: str, made: Any, version: int = 2) -> Step:
    """A token in SaslAuthenticate."""

    def take(conversation: Conversation) -> str:
        data = made(conversation) if callable(made) else made
        return request(SASL_AUTHENTICATE, version, auth_bytes=data).take(conversation)

    return Step(f"{name} v{version}", take)


def bare(name: str, made: Any) -> Step:
    """A token without a header."""

    def take(conversation: Conversation) -> str:
        data = made(conversation) if callable(made) else made
        answer = send_token(conversation.client, data)
        return f"bare {described_token(answer, conversation)}".strip()

    return Step(f"{name} bare", take)


def scram_first(conversation: Conversation) -> bytes:
    conversation.challenge = b""
    return conversation.scram.first()


def scram_final(conversation: Conversation) -> bytes:
    """Of a client that was refused at its first message, nothing that would be right."""
    challenge = conversation.challenge
    return conversation.scram.final(challenge) if challenge else b"none"


# Others.


def raw(name: str, data: bytes) -> Step:
    """Bytes as they are, to which there is no answer: the end of the connection, or nothing."""

    def take(conversation: Conversation) -> str:
        conversation.client.socket.settimeout(SILENCE_S)
        conversation.client.send_raw(data)
        return conversation.client.recv_frame().hex()

    return Step(name, take)


def wait() -> Step:
    """For the end of a short session, or of the second in which none begins anew."""

    def take(_: Conversation) -> str:
        time.sleep(PAST_SHORT_S)
        return "waited"

    return Step("later", take)


def as_user(user: str, password: str, mechanism: str = "SCRAM-SHA-256") -> Step:
    """Nothing is sent: the next tokens of SCRAM are of this user."""

    def take(conversation: Conversation) -> str:
        conversation.scram = ScramClient(mechanism, user, password)
        return f"as {user}"

    return Step(f"as {user}", take)
