"""A browser without a screen, for the console: it keeps cookies, and fills in forms of pages."""

from __future__ import annotations

import http.client
import re
import time
from html import unescape
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlencode, urlsplit

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.support.broker_process import BrokerProcess

WAIT_S = 60.0
URL = re.compile(r"console at (http://\S+)")
TOKEN = re.compile(r'name="token" value="([0-9a-f]+)"')


class Answer(NamedTuple):
    status: int
    fields: dict[str, str]
    body: bytes

    @property
    def html(self) -> str:
        return self.body.decode()

    @property
    def text(self) -> str:
        """What a reader sees: no tags, and single blanks."""
        return " ".join(unescape(re.sub(r"<[^>]*>", " ", self.html)).split())

    @property
    def rows(self) -> list[list[str]]:
        """The cells of each row of the tables."""
        found = []
        for row in re.findall(r"<tr[^>]*>(.*?)</tr>", self.html, re.DOTALL):
            cells = re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", row, re.DOTALL)
            found.append([Answer(0, {}, cell.encode()).text for cell in cells])
        return found


class ConsoleClient:
    """The console of a broker that was started with one."""

    def __init__(self, broker: BrokerProcess) -> None:
        found = URL.search(broker.output())
        assert found is not None, "it was started without --console"
        self.url = found[1]
        self._cookies: dict[str, str] = {}

    @property
    def port(self) -> int:
        port = urlsplit(self.url).port
        assert port is not None
        return port

    def get(self, path: str, fields: Mapping[str, str] | None = None) -> Answer:
        return self.ask("GET", path, fields=fields)

    def wait_until(self, holds: Callable[[], bool]) -> None:
        """Ask until this holds."""
        deadline = time.monotonic() + WAIT_S
        while not holds():
            assert time.monotonic() < deadline
            time.sleep(0.1)

    def page_when(self, path: str, holds: Callable[[Answer], bool]) -> Answer:
        """The page as soon as this holds of it: lists are made of what was told a moment ago."""
        deadline = time.monotonic() + WAIT_S
        while not holds(page := self.get(path)):
            assert time.monotonic() < deadline, page.text
            time.sleep(0.1)
        return page

    def ask(
        self,
        method: str,
        path: str,
        *,
        fields: Mapping[str, str] | None = None,
        body: str | None = None,
    ) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        sent = {"Cookie": "; ".join(f"{name}={text}" for name, text in self._cookies.items())}
        if body is not None:
            sent["Content-Type"] = "application/x-www-form-urlencoded"
        try:
            connection.request(method, path, body=body, headers={**sent, **(fields or {})})
            answer = connection.getresponse()
            for name, value in answer.getheaders():
                if name.lower() == "set-cookie":
                    cookie, _, text = value.partition(";")[0].partition("=")
                    self._cookies[cookie] = text.strip('"')
            told = {name.lower(): value for name, value in answer.getheaders()}
            return Answer(answer.status, told, answer.read())
        finally:
            connection.close()

    def send(self, page: str, action: str, **values: str) -> Answer:
        """Fill in a form of a page and send it there, with the token that the page has."""
        token = TOKEN.search(self.get(page).html)
        assert token is not None, f"{page} has no form"
        return self.ask("POST", action, body=urlencode({"token": token[1], **values}))
