"""A token of OAUTHBEARER from an issuer's token endpoint: client credentials (RFC 6749, 4.4).

It is fetched at each login, as the file with a token is read at each.
"""

from __future__ import annotations

import base64
import json
import re
from dataclasses import dataclass
from urllib.parse import urlencode, urlsplit

from client.errors import ConnectionLost, Refused

TIMEOUT_S = 10.0
ANSWER_MAX_BYTES = 1 << 20
LOOPBACK = ("localhost", "127.0.0.1", "::1")
_TOKEN = re.compile(r"[A-Za-z0-9._~+/=-]{1,262144}")
_ERROR = re.compile(r"[\x20-\x7e]{1,200}")


@dataclass(frozen=True, repr=False)
class TokenEndpoint:
    """Where a client gets its tokens, and as whom."""

    url: str
    """An https URL, or http on this machine: the secret goes there."""
    client_id: str
    client_secret: str
    scope: str = ""

    def __repr__(self) -> str:
        return f"TokenEndpoint({self.url})"

    def token(self) -> str:
        """A new token. Raises Refused if the endpoint gives none, and ConnectionLost if it can't be
        asked."""
        from http.client import HTTPException
        from urllib.error import HTTPError
        from urllib.request import HTTPRedirectHandler, Request, build_opener

        class NoRedirects(HTTPRedirectHandler):
            """The secret is for this endpoint alone."""

            def redirect_request(self, *_request: object, **_more: object) -> None:
                return None

        form = {"grant_type": "client_credentials"} | ({"scope": self.scope} if self.scope else {})
        secret = f"{self.client_id}:{self.client_secret}".encode()
        request = Request(
            self.url,
            urlencode(form).encode(),
            {
                "Authorization": f"Basic {base64.b64encode(secret).decode()}",
                "Content-Type": "application/x-www-form-urlencoded",
                "Accept": "application/json",
            },
        )
        try:
            with build_opener(NoRedirects).open(request, timeout=TIMEOUT_S) as answer:
                data = answer.read(ANSWER_MAX_BYTES)
        except HTTPError as error:
            with error:
                why = _field(error.read(ANSWER_MAX_BYTES), "error", _ERROR)
            told = f": {why}" if why else ""
            raise Refused(f"{self.url} gives no token: HTTP {error.code}{told}") from None
        except (OSError, HTTPException) as error:
            raise ConnectionLost(f"{self.url} can't be asked for a token: {error}") from None
        token = _field(data, "access_token", _TOKEN)
        if token is None:
            raise Refused(f"{self.url} answers without an access_token that is a bearer token")
        return token


def is_safe(url: str) -> bool:
    """Whether a secret may be sent there."""
    parts = urlsplit(url)
    return (parts.scheme == "https" and bool(parts.hostname)) or (
        parts.scheme == "http" and parts.hostname in LOOPBACK
    )


def _field(data: bytes, name: str, form: re.Pattern[str]) -> str | None:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return None
    value = found.get(name) if isinstance(found, dict) else None
    return value if isinstance(value, str) and form.fullmatch(value) else None
