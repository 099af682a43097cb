"""The conversation by which one connection authenticates, and later does so again (KIP-368).

    SaslHandshake names a mechanism -> tokens, to and fro -> a principal, for so long

Time and tokens come in, verdicts go out. Errors and their texts are Kafka's; what differs is listed
in tests/clients/sasl/test_sasl_answers.py.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from broker.security.sasl.mechanism import BadToken, Challenge, Done, Refused
from protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from broker.security.principal import Principal
    from broker.security.sasl.mechanism import Exchange, Mechanism

AGAIN_EVERY_MS = 1000
"""One that authenticates again sooner after the last time that it did is told that it is
authenticated, as by Kafka."""


class State(Enum):
    """What is wanted next of the client."""

    HANDSHAKE = "handshake"
    TOKENS = "tokens"
    RAW_TOKENS = "raw tokens"
    AUTHENTICATED = "authenticated"
    FAILED = "failed"


class AuthenticationFailed(Exception):
    """The connection is to be closed, after an answer of this code and text.

    `cause` is for our log, and has nothing secret.
    """

    def __init__(self, code: ErrorCode, text: str, cause: str = "") -> None:
        super().__init__(text)
        self.code = code
        self.cause = cause or text


class Session(NamedTuple):
    """The end of a conversation: who the client is, for how many ms (None is for ever), and the
    delegation token that has let it in."""

    token: bytes | None
    principal: Principal
    lifetime_ms: int | None
    delegation_token: str | None = None


class AnotherMechanism:
    """Takes the place of the exchange of a client that wants to authenticate again in another way.
    It is told so at its first token, where Kafka ends the connection without a word."""

    def __init__(self, asked: str, before: str) -> None:
        self._asked = asked
        self._before = before

    def step(self, token: bytes) -> Challenge | Done:
        raise Refused(
            f"SASL mechanism '{self._asked}' requested by client is not supported for "
            f"re-authentication of mechanism '{self._before}'"
        )


class Authentication:
    """One connection's. `step` may be called on a thread, all else on the loop."""

    def __init__(
        self,
        mechanisms: Mapping[str, Mechanism],
        token_ends: Callable[[str], int | None] = lambda _: None,
    ) -> None:
        """`token_ends` gives until when the delegation token of an id is good now, in ms since
        1970; None where it has ended."""
        self._mechanisms = mechanisms
        self._token_ends = token_ends
        self.state = State.HANDSHAKE
        self.mechanism: Mechanism | None = None
        self._exchange: Exchange | None = None
        self._authenticated_by: str | None = None
        self._principal: Principal | None = None
        self._limited = False
        self._again_ms: int | None = None

    @property
    def enabled(self) -> list[str]:
        """The names of the mechanisms that may be chosen."""
        return list(self._mechanisms)

    @property
    def is_again(self) -> bool:
        """Whether the client had authenticated before."""
        return self._authenticated_by is not None

    def may_begin(self, now_ms: int) -> bool:
        """Whether a handshake is in order now. As in Kafka no session begins anew that would last
        for ever."""
        if self.state is State.AUTHENTICATED:
            before_ms = self._again_ms
            return self._limited and (before_ms is None or now_ms - before_ms >= AGAIN_EVERY_MS)
        return self.state is State.HANDSHAKE

    def begin(self, name: str, *, raw: bool, now_ms: int) -> None:
        """The client chooses a mechanism; `raw` tokens have no header. Raises
        AuthenticationFailed."""
        mechanism = self._mechanisms.get(name)
        if mechanism is None:
            self.state = State.FAILED
            raise AuthenticationFailed(
                ErrorCode.UNSUPPORTED_SASL_MECHANISM,
                f"Unsupported SASL mechanism {name[:64]}",
                "the mechanism that it chose is not enabled (sasl.enabled.mechanisms)",
            )
        if self.is_again:
            self._again_ms = now_ms
        self.mechanism = mechanism
        if self._authenticated_by in (None, name):
            self._exchange = mechanism.begin()
        else:
            self._exchange = AnotherMechanism(name, self._authenticated_by or "")
        self.state = State.RAW_TOKENS if raw else State.TOKENS

    def step(self, token: bytes) -> Challenge | Done:
        """The mechanism's answer to a token. Raises AuthenticationFailed; nothing else changes, so
        that it can be called on a thread."""
        assert self._exchange is not None
        assert self.mechanism is not None
        try:
            return self._exchange.step(token)
        except Refused as refused:
            code = ErrorCode.SASL_AUTHENTICATION_FAILED
            raise AuthenticationFailed(code, str(refused), refused.cause) from None
        except BadToken as bad:
            raise self._invalid(str(bad)) from None

    def take(self, answer: Challenge | Done, now_ms: int) -> Challenge | Session:
        """What the mechanism has answered holds. Raises AuthenticationFailed."""
        if isinstance(answer, Challenge):
            return answer
        assert self.mechanism is not None
        before = self._principal
        if before is not None and before != answer.principal:
            raise AuthenticationFailed(
                ErrorCode.SASL_AUTHENTICATION_FAILED,
                "Cannot change principals during re-authentication from "
                f"{before.kind}.{before.name}: {answer.principal.kind}.{answer.principal.name}",
            )
        expires_ms = answer.expires_ms
        if answer.delegation_token is not None:
            # As it is now: it may have ended since the client's first message, and who is let in
            # by an ended one would not be among those whom its end has cut off.
            expires_ms = self._token_ends(answer.delegation_token)
            if expires_ms is None:
                raise self._invalid("its delegation token ended while it logged in")
        lifetimes = []
        if expires_ms is not None:
            lifetimes.append(expires_ms - now_ms)
        if self.mechanism.max_session_ms > 0:
            lifetimes.append(self.mechanism.max_session_ms)
        self._principal = answer.principal
        self._authenticated_by = self.mechanism.name
        self._exchange = None
        self.state = State.AUTHENTICATED
        lifetime_ms = max(0, min(lifetimes)) if lifetimes else None
        self._limited = lifetime_ms is not None
        return Session(answer.token, answer.principal, lifetime_ms, answer.delegation_token)

    def _invalid(self, cause: str) -> AuthenticationFailed:
        """The client is told no more than this."""
        assert self.mechanism is not None
        what = "re-authentication" if self.is_again else "authentication"
        return AuthenticationFailed(
            ErrorCode.SASL_AUTHENTICATION_FAILED,
            f"Authentication failed during {what} due to invalid credentials with SASL "
            f"mechanism {self.mechanism.name}",
            cause,
        )

    def fail(self) -> None:
        """Nothing more is taken of this client."""
        self.state = State.FAILED
        self._exchange = None
