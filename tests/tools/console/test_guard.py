"""Who may ask the console for something: the fields of a request decide, at a real console."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.support.console import ConsoleClient


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.1:8092", "localhost", "[::1]:8092"])
def test_addresses_and_localhost_are_its_names(console: ConsoleClient, host: str) -> None:
    assert console.get("/topics", {"Host": host}).status == 200


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8092", "127.0.0.1.evil.example"])
def test_a_name_that_was_made_to_point_here_is_refused(console: ConsoleClient, host: str) -> None:
    answer = console.get("/topics", {"Host": host})
    assert answer.status == 403
    assert "use its address" in answer.text


@pytest.mark.parametrize(
    "fields",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_a_form_of_another_page_is_refused(console: ConsoleClient, fields: dict[str, str]) -> None:
    answer = console.ask("POST", "/logout", body="", fields=fields)
    assert answer.status == 403
    assert "may change nothing here" in answer.text


def test_a_form_without_the_token_of_our_pages_is_refused(console: ConsoleClient) -> None:
    console.get("/topics")
    for body in ("", "token=x", "token=%C3%A4", "&" * 200, "\xff"):
        answer = console.ask("POST", "/logout", body=body)
        assert answer.status == 403, body


def test_a_form_that_is_too_large_is_not_read_to_its_end(console: ConsoleClient) -> None:
    console.get("/topics")
    try:
        answer = console.ask("POST", "/logout", body="token=" + "x" * (3 << 20))
    except ConnectionError:
        pass  # it was answered, and the connection closed, before all was sent
    else:
        assert (answer.status, "at most 2 MiB" in answer.text) == (403, True)
    assert console.get("/topics").status == 200


def test_no_script_but_our_file_may_run(console: ConsoleClient) -> None:
    for path in ("/topics", "/nothing", "/static/console.js"):
        fields = console.get(path).fields
        policy = fields["content-security-policy"]
        assert policy.startswith("default-src 'self';"), path
        assert "unsafe" not in policy
        assert fields["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("path", ["/static/../app.py", "/static/%2e%2e/app.py", "/static/"])
def test_only_the_files_of_the_pages_are_served(console: ConsoleClient, path: str) -> None:
    assert console.get(path).status == 404
