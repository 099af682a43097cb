"""Delegation tokens over the wire: what must not be possible with one that ends, and what one
client's token must not do to others."""

from __future__ import annotations

import base64
import time
from typing import TYPE_CHECKING, Any

import pytest

from protocol.errors import ErrorCode
from protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from protocol.messages.describe_delegation_token import DescribeDelegationTokenRequest
from protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from protocol.messages.metadata import MetadataRequest
from tests.support.secured import ScramClient, SecuredBroker, authenticate, shake
from tests.support.wire_client import ConnectionClosed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.wire_client import WireClient

MECHANISM = "SCRAM-SHA-256"
SECRET_KEY = "key-of-the-tests-zx90"
SESSION_MS = 700
HOUR_MS = 3_600_000
ASKED = MetadataRequest(topics=[])


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    settings = {
        "delegation.token.secret.key": SECRET_KEY,
        "connection.failed.authentication.delay.ms": "0",
        "listener.name.sasl_ssl.connections.max.reauth.ms": str(SESSION_MS),
    }
    folder = tmp_path_factory.mktemp("tokens")
    with SecuredBroker(folder, settings) as broker:
        broker.add_scram_users()
        yield broker
        said = broker.output()
        assert "Traceback" not in said, said[-3000:]
        assert SECRET_KEY not in said


@pytest.fixture
def alice(secured: SecuredBroker) -> Iterator[WireClient]:
    with secured.connect("SASL_PLAINTEXT") as client:
        shake(client, "PLAIN")
        assert authenticate(client, b"\0alice\0alice-secret").error_code == 0
        yield client


def created(owner: WireClient, **asked: Any) -> Any:
    answer = owner.call(
        CreateDelegationTokenRequest(**{"renewers": [], "max_lifetime_ms": -1, **asked}), 3
    )
    assert answer.error_code == 0
    return answer


def expired(owner: WireClient, token: Any, period_ms: int) -> int:
    asked = ExpireDelegationTokenRequest(hmac=token.hmac, expiry_time_period_ms=period_ms)
    code: int = owner.call(asked, 2).error_code
    return code


def login_of(token: Any) -> ScramClient:
    password = base64.b64encode(bytes(token.hmac)).decode()
    return ScramClient(MECHANISM, token.token_id, password, ",tokenauth=true")


def log_in(client: WireClient, token: Any) -> Any:
    """The answer to the last message of SCRAM."""
    scram = login_of(token)
    assert shake(client, MECHANISM).error_code == 0
    challenge = authenticate(client, scram.first())
    assert challenge.error_code == 0
    return authenticate(client, scram.final(bytes(challenge.auth_bytes)))


def test_nobody_logs_in_with_a_token_that_ended_meanwhile(
    secured: SecuredBroker, alice: WireClient
) -> None:
    token = created(alice)
    scram = login_of(token)
    with secured.connect("SASL_PLAINTEXT") as client:
        shake(client, MECHANISM)
        challenge = authenticate(client, scram.first())
        assert expired(alice, token, -1) == 0
        answer = authenticate(client, scram.final(bytes(challenge.auth_bytes)))
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert "invalid credentials" in answer.error_message
        with pytest.raises(ConnectionClosed):
            client.call(ASKED, 9)


def test_a_login_during_which_a_token_was_shortened_lasts_no_longer_than_the_token(
    secured: SecuredBroker, alice: WireClient
) -> None:
    token = created(alice)
    scram = login_of(token)
    with secured.connect("SASL_PLAINTEXT") as client:
        shake(client, MECHANISM)
        challenge = authenticate(client, scram.first())
        assert expired(alice, token, HOUR_MS) == 0
        answer = authenticate(client, scram.final(bytes(challenge.auth_bytes)))
        assert answer.error_code == 0
        assert 0 < answer.session_lifetime_ms <= HOUR_MS


def test_to_shorten_a_token_lengthens_no_session(secured: SecuredBroker, alice: WireClient) -> None:
    token = created(alice)
    with secured.connect("SASL_SSL") as client:
        answer = log_in(client, token)
        assert 0 < answer.session_lifetime_ms <= SESSION_MS
        began = time.monotonic()
        assert expired(alice, token, HOUR_MS) == 0
        with pytest.raises(ConnectionClosed):  # noqa: PT012 - any of the requests may be the one that is refused
            while time.monotonic() < began + 20 * SESSION_MS / 1000:
                client.call(ASKED, 9)


def test_a_renewer_without_a_name_hides_no_tokens(alice: WireClient) -> None:
    renewer = CreateDelegationTokenRequest.Renewer
    token = created(alice, renewers=[renewer(principal_type="User", principal_name="")])
    answer = alice.call(DescribeDelegationTokenRequest(owners=None), 3)
    assert answer.error_code == 0
    (found,) = [one for one in answer.tokens if one.token_id == token.token_id]
    assert [(one.principal_type, one.principal_name) for one in found.renewers] == [("User", "")]
    assert expired(alice, token, -1) == 0
