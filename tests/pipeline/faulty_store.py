"""A way to a server of S3 on which requests fail: throttled, broken, cut before or behind it."""

from __future__ import annotations

import contextlib
import http.client
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from random import Random
    from typing import Self

FAULTS = ("503", "500", "cut before", "cut behind")
ANSWERS = {"503": "SlowDown", "500": "InternalError"}
HOP = {"connection", "keep-alive", "transfer-encoding", "content-length"}


class FaultyStore:
    """Listens on loopback. Of the requests it gets, one in `one_in` fails, in one of FAULTS.

    "cut behind" is done by the server, and its answer is lost. While `gone`, no connection lives.
    """

    def __init__(self, port: int, random: Random, *, one_in: int) -> None:
        self._random = random
        self.one_in = one_in
        self._lock = threading.Lock()
        self.faults: dict[str, int] = dict.fromkeys(FAULTS, 0)
        self.requests = 0
        self.gone = False
        self.gone_after: int | None = None
        """So many requests are answered, and then none."""
        store = self

        class Handler(_Forwarding):
            server_port = port

            def fault(self) -> str | None:
                return store._fault()

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _fault(self) -> str | None:
        with self._lock:
            self.requests += 1
            if self.gone_after is not None and self.requests > self.gone_after:
                self.gone = True
            if self.gone:
                return "cut before"
            if not self.one_in or self._random.randrange(self.one_in):
                return None
            fault = self._random.choice(FAULTS)
            self.faults[fault] += 1
            return fault


class _Forwarding(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_port = 0

    def fault(self) -> str | None:
        raise NotImplementedError

    def _forward(self) -> None:
        body = self._body()
        fault = self.fault()
        if fault == "cut before":
            self.close_connection = True
            return
        if fault in ANSWERS:
            code = ANSWERS[fault]
            self._answer(int(fault), {}, f"<Error><Code>{code}</Code></Error>".encode())
            return
        upstream = http.client.HTTPConnection("127.0.0.1", self.server_port, timeout=60)
        try:
            upstream.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                upstream.putheader(name, value)
            upstream.endheaders(body or None)
            answer = upstream.getresponse()
            data = answer.read()
            if fault == "cut behind":
                self.close_connection = True
                return
            headers = dict(answer.getheaders())
            self._answer(answer.status, headers, data, answer.headers.get("Content-Length"))
        finally:
            upstream.close()

    def _body(self) -> bytes:
        """As it came, with the lengths of its chunks where it is sent so."""
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = []
        while True:
            line = self.rfile.readline()
            size = int(line.partition(b";")[0], 16)
            parts += [line, self.rfile.read(size + 2)]
            if not size:
                return b"".join(parts)

    def _answer(
        self, status: int, headers: dict[str, str], data: bytes, length: str | None = None
    ) -> None:
        with contextlib.suppress(OSError):
            self.send_response_only(status)
            for name, value in headers.items():
                if name.lower() not in HOP:
                    self.send_header(name, value)
            self.send_header("Content-Length", length or str(len(data)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data)

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _forward

    def handle_expect_100(self) -> bool:
        self.send_response_only(100)
        self.end_headers()
        return True

    def log_message(self, *_: Any) -> None:
        """Nothing."""
