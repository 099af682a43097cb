"""What every request has to pass, and what every answer carries.

A page of somebody else's must not reach the console through the browser of a user: a name that was
made to point here (DNS rebinding) is refused by the field Host, a form of another page by Origin
and by a token that only our pages have. What a record holds is never run: no script but our file is
allowed (Content-Security-Policy), whatever a page may hold.
"""

from __future__ import annotations

import hashlib
import hmac
from ipaddress import ip_address
from typing import TYPE_CHECKING

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse

if TYPE_CHECKING:
    from collections.abc import Iterable

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

SAFE_METHODS = ("GET", "HEAD")
FIELDS = {
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'; object-src 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    # Not "no-referrer": browsers then say of our own forms that they come from nowhere.
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


def token_of(key: bytes, secret: str) -> str:
    """What a form has to carry that comes from the browser with this secret."""
    return hmac.new(key, secret.encode(), hashlib.sha256).hexdigest()


class Guard:
    """Around all of the application."""

    def __init__(self, app: ASGIApp, names: Iterable[str]) -> None:
        """`names` are the hosts that the console may be called by, besides addresses and
        localhost."""
        self._app = app
        self._names = {name.lower() for name in names} | {"localhost"}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_fields(message: Message) -> None:
            if message["type"] == "http.response.start":
                fields = MutableHeaders(scope=message)
                for name, text in FIELDS.items():
                    fields[name] = text
                is_static = scope["path"].startswith("/static/")
                fields["Cache-Control"] = "no-cache" if is_static else "no-store"
            await send(message)

        refusal = self._refusal(scope["method"], Headers(scope=scope))
        app = self._app if refusal is None else PlainTextResponse(refusal, status_code=403)
        await app(scope, receive, send_with_fields)

    def _refusal(self, method: str, fields: Headers) -> str | None:
        host = fields.get("host", "")
        if not self._is_ours(_name_of(host)):
            return (
                f"the console is not called '{host[:100]}': use its address, localhost, or the "
                "name that --console has\n"
            )
        if method in SAFE_METHODS:
            return None
        origin = fields.get("origin")
        if origin is not None and origin not in (f"http://{host}", f"https://{host}"):
            return f"a page of '{origin[:100]}' may change nothing here\n"
        if fields.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            return "a page of another site may change nothing here\n"
        return None

    def _is_ours(self, name: str) -> bool:
        if name in self._names:
            return True
        try:
            ip_address(name)
        except ValueError:
            return False
        return True


def _name_of(host: str) -> str:
    """A host without its port, and without the brackets of IPv6."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].lower()
