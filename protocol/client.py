"""The client's side of a connection, without the socket: requests into frames, frames into answers.

The first request asks for the broker's versions (KIP-35, so Kafka 0.10 or later); every other one
goes out in a version that both sides know. What a broker from before that does instead, and how it
is told from one that is only slow, stands at `VERSIONS_0_8` and `VERSIONS_0_9`.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from protocol.eras import FETCH, PRODUCE
from protocol.errors import ErrorCode, Malformed
from protocol.header import API_VERSIONS_KEY
from protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from protocol.primitives import skip_tags
from protocol.quirks import SOFTWARE_NAME
from protocol.registry import APIS
from protocol.schema import Message

if TYPE_CHECKING:
    from collections.abc import Mapping

    from protocol.fields import Buffer
    from protocol.registry import Api

Answer = TypeVar("Answer", bound=Message)

LENGTH_BYTES = 4
"""Of the length before every frame."""

_FRAME = Struct(">ihhih")
"""Length, key, version, correlation id, length of the client id."""
_CORRELATION_ID = Struct(">i")
_CODE = Struct(">h")
# Every broker that knows ApiVersions at all reads this one, or says so in the answer of version 0.
_FIRST_ASKED = 3
_FETCH_OF_4, _PRODUCE_OF_4 = 4, 3

VERSIONS_0_8: Mapping[int, tuple[int, int]] = {
    0: (0, 0),
    1: (0, 0),
    2: (0, 0),
    3: (0, 0),
    8: (0, 1),
    9: (0, 1),
    10: (0, 0),
}
"""The versions of Kafka 0.8.2. It closes the connection when it is asked for versions, and it
answers ListOffsets in any version at all as version 0, which no later broker does: they close."""
VERSIONS_0_9: Mapping[int, tuple[int, int]] = {
    0: (0, 1),
    1: (0, 1),
    2: (0, 0),
    3: (0, 0),
    8: (0, 2),
    9: (0, 1),
    10: (0, 0),
    16: (0, 0),
}
"""The versions of Kafka 0.9 of use to a client outside a group. It does not answer when it is asked
for versions, and answers the next request on the same connection at once."""
IMPOSSIBLE_VERSION = 32767


class WrongAnswer(Exception):
    """No answer to the request. The text goes on from the name of who sent it."""


class OutOfStep(WrongAnswer):
    """It is no answer to this request at all, so that what follows makes no sense either."""


class VersionsNotTold(WrongAnswer):
    """An error instead of versions, or with them: what came with it has been learned."""


class Sent(NamedTuple):
    """A request on its way, as far as its answer depends on it."""

    api: Api
    version: int
    correlation_id: int


class Conversation:
    """Both sides' versions, and the numbering of requests. `versions` is empty until it is learned:
    of each API that the broker speaks the oldest and newest version. `features` are the levels at
    which the cluster's features are finalized (KIP-584); empty before Kafka 2.7."""

    def __init__(self, client_id: bytes, *, max_answer_bytes: int) -> None:
        """An answer that claims to be longer than `max_answer_bytes` is another protocol's first
        bytes."""
        self.versions: Mapping[int, tuple[int, int]] = {}
        self.features: Mapping[str, int] = {}
        self._client_id = client_id
        self._max_answer_bytes = max_answer_bytes
        self._correlation_id = 0

    def request(
        self, request: Message, version: int, *, claimed: int | None = None
    ) -> tuple[Sent, bytearray]:
        """The frame to send. Its header can claim another version than the body has.

        Raises ValueError for a value that does not fit.
        """
        api = APIS[type(request).key]
        self._correlation_id += 1
        frame = bytearray(_FRAME.size) + self._client_id
        if version >= api.first_flexible:
            frame.append(0)
        # Straight into the frame: records are copied once.
        try:
            request.encoder(version)(request, frame, [])
        except Exception:
            request.encode(version)  # names the field
            raise
        _FRAME.pack_into(
            frame,
            0,
            len(frame) - LENGTH_BYTES,
            api.key,
            version if claimed is None else claimed,
            self._correlation_id,
            len(self._client_id),
        )
        return Sent(api, version, self._correlation_id), frame

    def size(self, length: Buffer) -> int:
        """The size in bytes of the frame that follows these four. Raises OutOfStep."""
        size = int.from_bytes(length, signed=True)
        if not _CORRELATION_ID.size <= size <= self._max_answer_bytes:
            raise OutOfStep("does not speak Kafka")
        return size

    def answers(self, sent: Sent, frame: Buffer) -> bool:
        """Whether a frame of a size that `size` allowed has the correlation id of this request."""
        found: int = _CORRELATION_ID.unpack_from(frame)[0]
        return found == sent.correlation_id

    def body(self, sent: Sent, frame: Buffer) -> int:
        """The position in the frame, given without its length, of the answer's body.

        Raises OutOfStep if it answers another request, WrongAnswer for a bad header.
        """
        if not self.answers(sent, frame):
            raise OutOfStep(f"answered another request than {sent.api.name}")
        position = _CORRELATION_ID.size
        if sent.version >= sent.api.first_flexible and sent.api.key != API_VERSIONS_KEY:
            try:
                position = skip_tags(frame, position, len(frame))
            except Malformed as error:
                raise OutOfStep(f"sent a malformed answer: {error}") from None
        return position

    def answer(self, sent: Sent, kind: type[Answer], frame: Buffer) -> Answer:
        """The answer in the frame; records in it are views of the frame. Raises WrongAnswer."""
        position = self.body(sent, frame)
        try:
            decoded, end = kind.decoder(sent.version)(frame, position, len(frame))
        except Malformed as error:
            raise WrongAnswer(f"sent a malformed answer: {error}") from None
        if end != len(frame):
            raise WrongAnswer(f"sent {len(frame) - end} bytes after its answer")
        return decoded

    def ask_versions(self) -> tuple[Sent, bytearray]:
        """The first request of a connection."""
        return self.request(self._versions_request(), _FIRST_ASKED)

    def learn_versions(self, sent: Sent, frame: Buffer) -> tuple[Sent, bytearray] | None:
        """Take the answer to `ask_versions`, or to what this gave: the next request to send, or
        None when the versions are known. Raises WrongAnswer."""
        position = self.body(sent, frame)
        refused = frame[position : position + _CODE.size] == _CODE.pack(
            ErrorCode.UNSUPPORTED_VERSION
        )
        if refused and sent.version:
            return self.request(self._versions_request(), 0)
        decode = ApiVersionsResponse.decoder(sent.version)
        try:
            answer, _ = decode(frame, position, len(frame))
        except Malformed as error:
            raise OutOfStep(f"sent a malformed answer: {error}") from None
        told = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}
        self.versions = _without_refused(told)
        self.features = {one.name: one.max_version_level for one in answer.finalized_features}
        if answer.error_code:
            raise VersionsNotTold(f"does not tell its versions: {said(answer.error_code)}")
        return None

    def version(self, key: int, oldest: int = 0, newest: int | None = None) -> int | None:
        """The newest version of an API from `oldest` to `newest` that both sides know; None if
        there is none."""
        api = APIS[key]
        first, last = self.versions.get(key, (0, -1))
        found = min(last, api.max_version if newest is None else newest)
        return found if found >= max(first, api.min_version, oldest) else None

    def lacking(self, key: int, oldest: int = 0, newest: int | None = None) -> str:
        """Why there is no such version. The text goes on from the name of the broker."""
        api = APIS[key]
        first, last = self.versions.get(key, (0, -1))
        found = f"versions {first} to {last}" if last >= 0 else "no version"
        to = api.max_version if newest is None else newest
        return f"speaks {found} of {api.name}, wanted one of {max(api.min_version, oldest)} to {to}"

    def _versions_request(self) -> ApiVersionsRequest:
        return ApiVersionsRequest(client_software_name=SOFTWARE_NAME, client_software_version="1")


def _without_refused(told: dict[int, tuple[int, int]]) -> dict[int, tuple[int, int]]:
    """Kafka 4 lists Produce from version 0 on, for a library that infers codecs from it, but closes
    the connection at versions 0 to 2. It can be told by Fetch, which begins with 4 there."""
    if told.get(FETCH, (0, 0))[0] >= _FETCH_OF_4 and PRODUCE in told:
        first, last = told[PRODUCE]
        told[PRODUCE] = (max(first, _PRODUCE_OF_4), last)
    return told


def said(code: int) -> str:
    """An error code for people: its name, its number and what it means."""
    try:
        known = ErrorCode(code)
    except ValueError:
        return f"error {code}, which is not known here"
    return f"{known.name} ({code}): {known.meaning}"


def written(host: str, port: int) -> str:
    """An address for people; an IPv6 address is set off from its port by brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def reason(error: OSError | UnicodeError) -> str:
    """Why a socket failed, in the system's words. It is a UnicodeError where a host's name has a
    part that no name may have."""
    if isinstance(error, UnicodeError):
        return "no host can have that name"
    return (error.strerror or str(error) or type(error).__name__).lower()
