"""The token endpoint of an issuer, on loopback, as librdkafka's tests of OIDC expect one.

It gives a signed token for client credentials (RFC 6749, 4.4), for an assertion that the client has
signed (RFC 7523), and to whoever asks as a virtual machine in Azure asks its instance metadata
service. At `expired` the token has ended, at `malformed` there is none in the answer.
"""

from __future__ import annotations

import base64
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import parse_qs, urlsplit

import jwt

from tests.support.tokens import private_key, token

if TYPE_CHECKING:
    from collections.abc import Mapping

CLIENT_ID, CLIENT_SECRET, SCOPE = "app", "app-secret", "kafka"
ASSERTION = "urn:ietf:params:oauth:grant-type:jwt-bearer"
METADATA_QUERY = ("api-version", "resource", "client_id")
"""What has to be asked of an instance metadata service."""
EXPIRED_S = 3600


class Refused(Exception):
    """What the client is told by a code of RFC 6749."""


class TokenServer:
    """Serves until the end of its `with` block. Tokens are signed by `private_key("RS256")`,
    assertions by the key that `assertion_key` gives."""

    def __init__(self) -> None:
        server = self

        class Endpoint(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer(server.of_instance, _single(urlsplit(self.path).query))

            def do_POST(self) -> None:
                form = self.rfile.read(int(self.headers["Content-Length"])).decode()
                self._answer(server.of_client, _single(form))

            def _answer(self, give: Any, asked: Mapping[str, str]) -> None:
                try:
                    code, found = 200, give(urlsplit(self.path).path, asked, self.headers)
                except Refused as refused:
                    code, found = 400, {"error": str(refused)}
                data = json.dumps(found).encode()
                self.send_response(code)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Endpoint)

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def url(self, kind: str = "token") -> str:
        """`kind` is token, expired or malformed."""
        return f"http://127.0.0.1:{self._server.server_port}/{kind}"

    def of_client(
        self, path: str, form: Mapping[str, str], headers: Mapping[str, str]
    ) -> dict[str, Any]:
        """The answer to a client that names itself by its secret, or by what it has signed."""
        if form.get("grant_type") == ASSERTION:
            try:
                jwt.decode(
                    form["assertion"],
                    assertion_key().public_key(),
                    ["RS256"],
                    options={"verify_aud": False},
                )
            except (KeyError, jwt.InvalidTokenError):
                raise Refused("invalid_grant") from None
        else:
            secret = base64.b64encode(f"{CLIENT_ID}:{CLIENT_SECRET}".encode()).decode()
            if headers["Authorization"] != f"Basic {secret}":
                raise Refused("invalid_client")
            if form.get("grant_type") != "client_credentials":
                raise Refused("unsupported_grant_type")
        if form.get("scope", SCOPE) != SCOPE:
            raise Refused("invalid_scope")
        return self._found(path)

    def of_instance(
        self, path: str, query: Mapping[str, str], headers: Mapping[str, str]
    ) -> dict[str, Any]:
        """The answer to a program on a virtual machine."""
        if headers["Metadata"] != "true" or not all(query.get(key) for key in METADATA_QUERY):
            raise Refused("invalid_request")
        return self._found(path)

    def _found(self, path: str) -> dict[str, Any]:
        if path == "/malformed":
            return {"access_token": "", "token_type": "Bearer"}
        now_s = int(time.time()) - (2 * EXPIRED_S if path == "/expired" else 0)
        claims = {"client_id": CLIENT_ID, "scope": SCOPE}
        return {"access_token": token(claims, now_s=now_s), "token_type": "Bearer"}


def assertion_key() -> Any:
    """The private key (RSA) by which a client signs assertions."""
    return private_key("RS256", "assertions")


def _single(form: str) -> dict[str, str]:
    return {key: values[0] for key, values in parse_qs(form).items()}
