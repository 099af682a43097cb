"""What every mechanism of SASL is: an exchange of tokens that ends with a principal or a
refusal."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.security.principal import Principal


class Refused(Exception):
    """The client is not who it says, or may not act as whom it wants. The text is told to it, as
    Kafka's SaslAuthenticationException is; `cause` is for our log, where it says more."""

    def __init__(self, text: str, cause: str = "") -> None:
        super().__init__(text)
        self.cause = cause


class BadToken(Exception):
    """A token is not what the mechanism wants, or its proof is wrong. The client is told no more
    than that its credentials are invalid; the text is for our log, and has nothing of the token in
    it."""


class Challenge(NamedTuple):
    """The client's next token is wanted."""

    token: bytes


class Done(NamedTuple):
    """The client is known. `expires_ms`, in ms since 1970, is when its credential ends; None is
    never. A token that is None is not sent where tokens have no header. `delegation_token` is the
    id of the one that has let it in, and which ends by itself or by others meanwhile."""

    token: bytes | None
    principal: Principal
    expires_ms: int | None = None
    delegation_token: str | None = None


class Exchange(Protocol):
    """One run of a mechanism."""

    def step(self, token: bytes) -> Challenge | Done:
        """Take the client's next token. Raises Refused and BadToken."""


def always(token: bytes) -> bool:
    """Every step is slow."""
    return True


def never(token: bytes) -> bool:
    """No step is slow."""
    return False


class Mechanism(NamedTuple):
    """A mechanism as a listener offers it. A slow step, by the token it takes, is made on a
    thread."""

    name: str
    begin: Callable[[], Exchange]
    max_session_ms: int = 0
    """After so long a client has to authenticate again (connections.max.reauth.ms); 0 is never."""
    slow: Callable[[bytes], bool] = never
