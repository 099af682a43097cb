"""Principals as texts."""

from __future__ import annotations

import pytest

from broker.security.principal import ANONYMOUS, Principal, parse_principal


def test_a_principal_is_written_with_its_type() -> None:
    assert str(ANONYMOUS) == "User:ANONYMOUS"


def test_a_name_may_have_colons() -> None:
    assert parse_principal("User:CN=a:b") == Principal("User", "CN=a:b")


@pytest.mark.parametrize("text", ["", "User", "User:", ":alice"])
def test_what_is_no_principal_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="Type:name"):
        parse_principal(text)
