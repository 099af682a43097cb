"""The public keys of who signs tokens: a JSON Web Key Set (RFC 7517) from a file or a URL.

Keys are kept, and read again when they are old, or when a token names one that is not there (an
issuer that changes keys signs with the new one at once). An endpoint that fails is asked again
after a wait that doubles; meanwhile the keys that are there hold. All of this runs on the threads
of slow mechanisms, never on the loop.
"""

from __future__ import annotations

import json
import os
import stat
import threading
from typing import TYPE_CHECKING, Any, NamedTuple

from broker.security.sasl.oauthbearer import InvalidToken

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SET_MAX_BYTES = 1 << 20
KEYS_MAX = 100
FETCH_TIMEOUT_SECONDS = 5.0
ANOTHER_READ_SECONDS = 1.0
"""One whose key is not there waits so long for a read that goes on: an issuer that changes its key
has all clients come with the new one at once, and Java's give up when they are refused."""
RSA_MIN_BITS = 2048

ALGORITHMS = {
    ("RSA", None): ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    ("EC", "P-256"): ("ES256",),
    ("EC", "P-384"): ("ES384",),
    ("EC", "P-521"): ("ES512",),
    ("OKP", "Ed25519"): ("EdDSA",),
}
"""The algorithms by kind and curve of a key. No other kind of key is taken."""


class BadKeySet(Exception):
    """No keys can be had. The text says where from, and why."""


class VerificationKey(NamedTuple):
    """A public key (of `cryptography`), and what it may verify."""

    key_id: str | None
    algorithms: tuple[str, ...]
    key: Any


class Waits(NamedTuple):
    """In ms: how old keys may become, and the waits after failures."""

    refresh_ms: int
    retry_ms: int
    retry_max_ms: int


class KeySet:
    """The keys that hold now. Used by several threads."""

    def __init__(
        self, read: Callable[[], bytes], waits: Waits, monotonic_ms: Callable[[], float]
    ) -> None:
        """`read` gives the set as JSON; it raises OSError and BadKeySet."""
        self._read = read
        self._waits = waits
        self._monotonic_ms = monotonic_ms
        self._lock = threading.Lock()
        self._keys: list[VerificationKey] | None = None
        self._read_ms = 0.0
        self._tried_ms = 0.0
        self._failures = 0
        self._why = ""

    def find(self, key_id: str | None, algorithm: str) -> list[VerificationKey]:
        """The keys that may have made a signature. Raises InvalidToken if there is no key at
        all."""
        now_ms = self._monotonic_ms()
        if self._keys is None or now_ms - self._read_ms >= self._waits.refresh_ms:
            self._refresh(now_ms)
        found = self._fitting(key_id, algorithm)
        if found or key_id is None:
            return found
        if self._may_look_again(now_ms):
            self._refresh(now_ms, wait_s=ANOTHER_READ_SECONDS)
        return self._fitting(key_id, algorithm)

    def refresh(self) -> None:
        """Read the keys. Raises BadKeySet."""
        self._refresh(self._monotonic_ms())
        if self._keys is None:
            raise BadKeySet(self._why)

    def _fitting(self, key_id: str | None, algorithm: str) -> list[VerificationKey]:
        if self._keys is None:
            raise InvalidToken(f"there are no keys to check a token: {self._why}")
        return [
            one
            for one in self._keys
            if algorithm in one.algorithms and (key_id is None or one.key_id == key_id)
        ]

    def _may_look_again(self, now_ms: float) -> bool:
        return now_ms - self._tried_ms >= self._waits.retry_max_ms

    def _refresh(self, now_ms: float, wait_s: float = 0) -> None:
        """Read the keys unless it is too early after a failure, or another thread does it. That is
        waited for so long, and where there are no keys until it is done."""
        if not self._lock.acquire(timeout=-1 if self._keys is None else wait_s):
            return
        try:
            if self._failures:
                doubled = self._waits.retry_ms * 2 ** min(self._failures - 1, 30)
                if now_ms - self._tried_ms < min(doubled, self._waits.retry_max_ms):
                    return
            elif self._keys is not None and self._tried_ms >= now_ms:
                return  # another thread has just read them
            try:
                self._keys = parse_key_set(self._read())
            except (OSError, BadKeySet) as error:
                self._failures += 1
                self._why = str(error)
            else:
                self._failures, self._why = 0, ""
                self._read_ms = self._monotonic_ms()
            self._tried_ms = self._monotonic_ms()
        finally:
            self._lock.release()


def parse_key_set(data: bytes) -> list[VerificationKey]:
    """The keys of a set that can verify signatures; others in it are left alone. Raises
    BadKeySet."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        raise BadKeySet("the key set is no JSON") from None
    keys = found.get("keys") if isinstance(found, dict) else None
    if not isinstance(keys, list):
        raise BadKeySet("the key set has no list `keys` (RFC 7517, 5)")
    if len(keys) > KEYS_MAX:
        raise BadKeySet(f"the key set has {len(keys)} keys, at most {KEYS_MAX} are read")
    usable = [key for one in keys if (key := _key(one)) is not None]
    if not usable:
        raise BadKeySet(f"none of {len(keys)} keys in the set verifies signatures")
    return usable


def _key(jwk: Any) -> VerificationKey | None:
    import jwt

    if not isinstance(jwk, dict) or jwk.get("use", "sig") != "sig":
        return None
    kind, curve = jwk.get("kty"), jwk.get("crv")
    if not isinstance(kind, str) or not isinstance(curve, str | None):
        return None
    algorithms = ALGORITHMS.get((kind, curve), ())
    if jwk.get("alg") is not None:
        algorithms = tuple(one for one in algorithms if one == jwk["alg"])
    key_id = jwk.get("kid")
    if not algorithms or not isinstance(key_id, str | None):
        return None
    try:
        key = jwt.PyJWK(jwk, algorithms[0]).key
    except (jwt.PyJWTError, ValueError, TypeError, KeyError):
        return None
    if hasattr(key, "public_key"):  # a private key has no place here, its public half does
        key = key.public_key()
    if kind == "RSA" and key.key_size < RSA_MIN_BITS:
        return None
    return VerificationKey(key_id, algorithms, key)


def from_file(path: Path) -> bytes:
    """The set in a file that not every user of this machine can write. Raises BadKeySet and
    OSError."""
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_mode & stat.S_IWOTH:
            raise BadKeySet(f"every user of this machine can write it; chmod o-w {path}")
        return bounded(file.read(SET_MAX_BYTES + 1))


def bounded(data: bytes | bytearray) -> bytes:
    """A set that is not too large. Raises BadKeySet."""
    if len(data) > SET_MAX_BYTES:
        raise BadKeySet(f"the key set has more than {SET_MAX_BYTES} bytes")
    return bytes(data)
