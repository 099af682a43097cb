"""A realm of MIT Kerberos on loopback: a KDC of a test's own, its principals, keytabs and tickets.

    with Realm(tmp_path) as realm:
        realm.add("alice", password="alice-secret")
        tickets = realm.kinit("alice", "alice-secret")

It needs Debian's packages krb5-kdc, krb5-admin-server and krb5-user, and the package gssapi.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from config.jaas import KRB5_LOGIN_MODULE
from tests.support.secured import USERS, SecuredBroker
from tests.support.server_process import free_port, wait_until_listening

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from types import TracebackType
    from typing import Self

REALM = "TEST.EXAMPLE"
HOST = "localhost"
SERVICE = f"kafka/{HOST}@{REALM}"
PROGRAMS = ("krb5kdc", "kdb5_util", "kadmin.local", "kinit")
PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
START_TIMEOUT_S = 20.0

KRB5_CONF = """
[libdefaults]
    default_realm = {realm}
    dns_lookup_kdc = false
    dns_lookup_realm = false
    dns_canonicalize_hostname = false
    rdns = false
    udp_preference_limit = 1
    clockskew = {clock_skew_s}
[realms]
    {realm} = {{
        kdc = 127.0.0.1:{port}
    }}
"""
KDC_CONF = """
[kdcdefaults]
    kdc_listen = 127.0.0.1:{port}
    kdc_tcp_listen = 127.0.0.1:{port}
[realms]
    {realm} = {{
        database_name = {folder}/principal
        key_stash_file = {folder}/stash
        max_life = 1h
        supported_enctypes = aes256-cts-hmac-sha1-96:normal aes128-cts-hmac-sha1-96:normal
    }}
[logging]
    kdc = FILE:{folder}/kdc.log
"""


def require() -> None:
    """Skip, or fail where this machine is said to have a KDC."""
    missing = [name for name in PROGRAMS if shutil.which(name, path=PATH) is None]
    try:
        import gssapi  # noqa: F401
    except ImportError:
        missing.append("package gssapi (requirements-kerberos.lock)")
    if not missing:
        return
    reason = f"there is no {', no '.join(missing)}"
    if "kerberos" in os.environ.get("TEST_REQUIRE_CLIENTS", "").split(","):
        pytest.fail(reason)
    pytest.skip(reason)


class Realm:
    """Belongs to a folder, with its krb5.conf, database, keytabs and caches of tickets."""

    def __init__(self, folder: Path, name: str = REALM, *, clock_skew_s: int = 300) -> None:
        require()
        self.folder = folder / name
        self.folder.mkdir()
        self.name = name
        self.port = free_port()
        self.config = self.folder / "krb5.conf"
        self.config.write_text(
            KRB5_CONF.format(realm=name, port=self.port, clock_skew_s=clock_skew_s)
        )
        profile = self.folder / "kdc.conf"
        profile.write_text(KDC_CONF.format(realm=name, port=self.port, folder=self.folder))
        self.environ = {
            "KRB5_CONFIG": str(self.config),
            "KRB5_KDC_PROFILE": str(profile),
            "KRB5CCNAME": f"FILE:{self.folder}/no-tickets",
            # Where authenticators are remembered: those of other tests are none of its business.
            "KRB5RCACHEDIR": str(self.folder),
        }
        self._kdc: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        # It asks the kernel for less than it takes to be random; the password is never used.
        self._run("kdb5_util", "create", "-s", "-r", self.name, "-P", "of-the-database")
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self) -> None:
        command = self._program("krb5kdc")
        self._kdc = subprocess.Popen(
            [command, "-n", "-r", self.name],
            env=self._environ(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        listening = wait_until_listening("127.0.0.1", self.port, timeout_s=START_TIMEOUT_S)
        assert listening, (self.folder / "kdc.log").read_text()

    def stop(self) -> None:
        if self._kdc is not None:
            self._kdc.terminate()
            self._kdc.wait(START_TIMEOUT_S)
            self._kdc = None

    def add(self, principal: str, *, password: str | None = None) -> None:
        """A principal with a password, or with a key that only a keytab will know."""
        how = f'-pw "{password}"' if password else "-randkey"
        self._admin(f"add_principal {how} {principal}")

    def keytab(self, name: str, *principals: str, new_keys: bool = True) -> Path:
        """A keytab with the keys of principals; it is made longer if it is there."""
        path = self.folder / f"{name}.keytab"
        how = "" if new_keys else "-norandkey "
        for principal in principals:
            self._admin(f"ktadd {how}-k {path} {principal}")
        path.chmod(0o600)
        return path

    def kinit(self, principal: str, password: str, *, lifetime_s: int = 3600) -> Path:
        """A cache with a ticket."""
        cache = self.folder / f"{principal.replace('/', '-')}-{lifetime_s}.tickets"
        self._run(
            *("kinit", "-l", f"{lifetime_s}s", "-c", f"FILE:{cache}", principal), given=password
        )
        return cache

    def service_ticket(self, principal: str, keytab: Path, *, server: str, lifetime_s: int) -> Path:
        """A cache with a ticket for a server alone, which can't be had anew."""
        cache = self.folder / f"{principal}-for-one.tickets"
        self._run(
            *("kinit", "-k", "-t", str(keytab), "-l", f"{lifetime_s}s"),
            *("-S", server, "-c", f"FILE:{cache}", principal),
        )
        return cache

    def _admin(self, query: str) -> None:
        self._run("kadmin.local", "-r", self.name, "-q", query)

    def _run(self, name: str, *arguments: str, given: str = "") -> None:
        ended = subprocess.run(
            [self._program(name), *arguments],
            env=self._environ(),
            input=given + "\n",
            capture_output=True,
            text=True,
            timeout=START_TIMEOUT_S,
            check=False,
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
        assert "rror" not in ended.stderr, ended.stderr

    def _program(self, name: str) -> str:
        found = shutil.which(name, path=PATH)
        assert found is not None
        return found

    def _environ(self) -> dict[str, str]:
        return {**os.environ, **self.environ}


class GssapiClient:
    """The client's side of the mechanism, with a ticket that kinit has got."""

    def __init__(self, tickets: Path, service: str = f"kafka@{HOST}") -> None:
        import gssapi

        store: Any = {"ccache": f"FILE:{tickets}"}
        self._context = gssapi.SecurityContext(
            name=gssapi.Name(service, gssapi.NameType.hostbased_service),
            creds=gssapi.Credentials(usage="initiate", store=store),
            mech=gssapi.MechType.kerberos,
            flags=gssapi.RequirementFlag.mutual_authentication,
            usage="initiate",
        )

    def first(self) -> bytes:
        return self._context.step() or b""

    def take(self, token: bytes) -> None:
        """The broker's proof. It answers nothing to it."""
        assert not self._context.step(token)
        assert self._context.complete

    def offered(self, offer: bytes) -> bytes:
        """What the broker has wrapped."""
        message: bytes = self._context.unwrap(offer).message
        return message

    def wrapped(self, choice: bytes, *, encrypted: bool = False) -> bytes:
        """A mask of layers, a size in three bytes, and as whom to act."""
        message: bytes = self._context.wrap(choice, encrypted).message
        return message


class KerberosBroker(SecuredBroker):
    """A broker of the realm, where alice and bob have passwords as everywhere. Clients have to dial
    it as localhost."""

    host_name = HOST

    def __init__(
        self, folder: Path, realm: Realm, settings: Mapping[str, str] | None = None
    ) -> None:
        for user, password in USERS.items():
            realm.add(user, password=password)
        realm.add(SERVICE)
        self.keytab = realm.keytab("kafka", SERVICE)
        super().__init__(folder, {**kerberos_settings(self.keytab), **(settings or {})})
        self.settings["advertised.listeners"] = ",".join(
            f"{name}://{HOST}:{port}" for name, port in self.ports.items()
        )

    def bootstrap_of(self, protocol: str) -> str:
        return f"{HOST}:{self.ports[protocol]}"


def kerberos_settings(keytab: Path, principal: str = SERVICE) -> dict[str, str]:
    """Of a broker."""
    jaas = (
        f"{KRB5_LOGIN_MODULE} required useKeyTab=true storeKey=true "
        f'keyTab="{keytab}" principal="{principal}";'
    )
    return {
        "sasl.enabled.mechanisms": "GSSAPI,PLAIN",
        "sasl.kerberos.service.name": "kafka",
        "listener.name.sasl_plaintext.gssapi.sasl.jaas.config": jaas,
        "listener.name.sasl_ssl.gssapi.sasl.jaas.config": jaas,
    }


@contextmanager
def realm_with_broker(
    folder: Path, settings: Mapping[str, str] | None = None
) -> Iterator[tuple[Realm, KerberosBroker]]:
    """Both running; this process is a machine of the realm meanwhile."""
    with Realm(folder) as realm, pytest.MonkeyPatch.context() as environ:
        for name, value in realm.environ.items():
            environ.setenv(name, value)
        with KerberosBroker(folder, realm, settings) as broker:
            yield realm, broker
            said = broker.output()
            assert "Traceback" not in said, said[-3000:]
