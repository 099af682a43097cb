"""A schema registry of a test: what Confluent's clients ask one for, kept in memory.

`failing` is what it answers everything with, in the place of what was asked for.
"""

from __future__ import annotations

import base64
import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self


class SchemaRegistry:
    """Listens on loopback while it is entered."""

    def __init__(self, *, login: str | None = None) -> None:
        self.schemas: dict[int, dict[str, Any]] = {}
        self.subjects: dict[str, list[int]] = {}
        self.requests: list[str] = []
        self.failing: tuple[int, bytes] | None = None
        self._login = login

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def register(self, subject: str, schema: object, **more: Any) -> int:
        """The id of a schema."""
        text = schema if isinstance(schema, str) else json.dumps(schema)
        content = {"schema": text, **more}
        known = [id_ for id_, one in self.schemas.items() if one == content]
        id_ = known[0] if known else len(self.schemas) + 1
        self.schemas[id_] = content
        versions = self.subjects.setdefault(subject, [])
        if id_ not in versions:
            versions.append(id_)
        return id_

    def __enter__(self) -> Self:
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer(*registry.answer("GET", self.path, None, dict(self.headers)))

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                self._answer(*registry.answer("POST", self.path, body, dict(self.headers)))

            def _answer(self, status: int, body: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def answer(
        self, method: str, path: str, body: Any, headers: dict[str, str]
    ) -> tuple[int, bytes]:
        path = path.partition("?")[0]
        self.requests.append(f"{method} {path}")
        if self.failing is not None:
            return self.failing
        if self._login is not None:
            given = base64.b64encode(self._login.encode()).decode()
            if headers.get("Authorization") != f"Basic {given}":
                return 401, _json({"error_code": 40101, "message": "Unauthorized"})
        status, content = self._found(method, path, body)
        return status, _json(content)

    def _found(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        if path == "/config":
            return 200, {"compatibilityLevel": "BACKWARD"}
        if found := re.fullmatch(r"/schemas/ids/(-?\d+)", path):
            schema = self.schemas.get(int(found[1]))
            return (200, schema) if schema else (404, _missing(40403))
        if found := re.fullmatch(r"/subjects/([^/]+)/versions/(\d+)", path):
            ids = self.subjects.get(found[1], [])
            version = int(found[2])
            if version > len(ids):
                return 404, _missing(40402)
            told = {"subject": found[1], "version": version, "id": ids[version - 1]}
            return 200, {**told, **self.schemas[ids[version - 1]]}
        if method == "POST" and (found := re.fullmatch(r"/subjects/([^/]+)(/versions)?", path)):
            more = {key: body[key] for key in ("schemaType", "references") if body.get(key)}
            id_ = self.register(found[1], body["schema"], **more)
            version = self.subjects[found[1]].index(id_) + 1
            return 200, {"subject": found[1], "version": version, "id": id_, **self.schemas[id_]}
        return 404, _missing(404)


def _missing(code: int) -> dict[str, Any]:
    return {"error_code": code, "message": "not found"}


def _json(content: Any) -> bytes:
    return json.dumps(content).encode()
