"""What docs/security.md says of the tokens of an issuer can be typed, with an issuer of our own."""

from __future__ import annotations

import base64
import json
import re
import ssl
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING

import pytest

from tests.clients.test_the_page_on_security import TOKENS, Reader
from tests.support.certificates import Authority
from tests.support.tokens import jwk, key_set, token

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.clients

BLOCKS = re.findall(r"```(\w*)\n(.*?)```", TOKENS, flags=re.DOTALL)
ISSUER = "issuer.example.com"
REALM = "/realms/main"


class Issuer(BaseHTTPRequestHandler):
    """Gives everybody who says a secret a token of the name that comes with it."""

    def do_GET(self) -> None:
        assert self.path == f"{REALM}/protocol/openid-connect/certs"
        self._answer(key_set([jwk("RS256", "one")]))

    def do_POST(self) -> None:
        assert self.path == f"{REALM}/protocol/openid-connect/token"
        self.rfile.read(int(self.headers["Content-Length"]))
        encoded = self.headers["Authorization"].removeprefix("Basic ")
        user, _, secret = base64.b64decode(encoded).decode().partition(":")
        assert secret == f"{user}-secret"
        server = self.server
        assert isinstance(server, HTTPServer)
        claims = {"sub": user, "iss": f"https://127.0.0.1:{server.server_port}{REALM}"}
        given = token(claims, now_s=int(time.time()))
        self._answer(json.dumps({"access_token": given}).encode())

    def _answer(self, data: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def issuer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Its host and port."""
    (tmp_path / "issuer").mkdir()
    authority = Authority(tmp_path / "issuer")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(authority.issue("issuer").pem)
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.certificate))
    server = HTTPServer(("127.0.0.1", 0), Issuer)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_the_page_has_the_broker_believe_the_tokens_of_an_issuer(
    tmp_path: Path, issuer: str
) -> None:
    reader = Reader(tmp_path)
    reader.ports[ISSUER] = issuer
    authority = Authority(tmp_path)
    (tmp_path / "certs").mkdir()
    authority.certificate.rename(tmp_path / "certs/ca.pem")
    authority.issue("broker").pem.rename(tmp_path / "certs/server.pem")
    tried = 0
    try:
        for kind, text in BLOCKS:
            if kind == "properties":
                reader.save(text)
                continue
            for one in text.removeprefix("$ ").split("\n$ "):
                line, *wanted = one.strip().splitlines()
                tried += 1
                printed = reader.type(line)
                assert not wanted or printed == wanted, line
    finally:
        reader.stop()
    assert tried == 3
