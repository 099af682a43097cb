"""What docs/security.md says of Kerberos can be typed, in a realm of the test's own."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.clients.test_the_page_on_security import KERBEROS, Reader
from tests.support.certificates import Authority
from tests.support.kerberos import HOST, PATH, REALM, Realm

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.clients

BLOCKS = re.findall(r"```(\w*)\n(.*?)```", KERBEROS, flags=re.DOTALL)


class ReaderOfARealm(Reader):
    """Somebody whose KDC, broker and clients are one machine."""

    def here(self, text: str) -> str:
        text = super().here(text)
        return text.replace("broker.example.com", HOST).replace("EXAMPLE.COM", REALM)


def test_the_page_makes_the_broker_a_service_of_a_realm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Realm(tmp_path) as realm:
        realm.add("admin", password="admin-secret")
        for name, value in realm.environ.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("KRB5CCNAME", f"FILE:{tmp_path}/tickets")
        monkeypatch.setenv("PATH", PATH)
        reader = ReaderOfARealm(tmp_path)
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
                command, *lines = text.split("\n$ ")
                for one in (command.removeprefix("$ "), *lines):
                    line, *wanted = one.strip().splitlines()
                    tried += 1
                    if line.startswith("kinit"):
                        line = f"echo admin-secret | {line}"
                    printed = reader.type(line)
                    assert not wanted or printed == wanted, line
        finally:
            reader.stop()
        assert tried == 6
