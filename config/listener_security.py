"""Keys of TLS and SASL, and the values that hold for one listener.

A key may be given for one listener (`listener.name.internal.ssl.keystore.location`), and those of
SASL for one of its mechanisms as well (`listener.name.internal.plain.sasl.jaas.config`). The most
special holds; among equals what was set at run time. As in Kafka, names of listeners and mechanisms
are in small letters there.

Not imported where only PLAINTEXT listeners are served and no such key is named.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from config.declare import Settings, at_least, each_of, key, one_of
from config.kinds import class_name, int32, int64, names, password, string
from config.listeners import LISTENER_PREFIX

if TYPE_CHECKING:
    from config.broker import BrokerSettings, Given

OF_A_MECHANISM = ("sasl.", "connections.max.reauth.ms")
"""Keys, or how they begin, that can be given for one mechanism of a listener."""


class ListenerSecurity(Settings):
    """What TLS and SASL of one listener, or of one mechanism there, are to be like."""

    ssl_client_auth: str = key(
        "ssl.client.auth",
        string,
        "none",
        "Whether clients prove who they are by a certificate: `required`, `requested` (those "
        "without one are User:ANONYMOUS) or `none`. Not looked at on SASL_SSL listeners, unless "
        "it is given for the listener.",
        check=one_of("required", "requested", "none"),
        since="0.9.0",
        dynamic=True,
    )
    ssl_enabled_protocols: tuple[str, ...] = key(
        "ssl.enabled.protocols",
        names,
        ("TLSv1.2", "TLSv1.3"),
        "The versions of TLS that are offered. TLSv1 and TLSv1.1 may be named and are never "
        "offered.",
        check=each_of("TLSv1", "TLSv1.1", "TLSv1.2", "TLSv1.3"),
        since="0.9.0",
        dynamic=True,
    )
    ssl_cipher_suites: tuple[str, ...] = key(
        "ssl.cipher.suites",
        names,
        (),
        "The cipher suites that are offered, by their names in Java or in OpenSSL; empty is the "
        "choice of OpenSSL. Of TLSv1.3 all suites are offered as soon as one is named.",
        since="0.9.0",
        dynamic=True,
    )
    ssl_keystore_type: str = key(
        "ssl.keystore.type",
        string,
        "JKS",
        "PEM or PKCS12. What a file is is seen by its first bytes; JKS files are refused with the "
        "command that converts them.",
        since="0.9.0",
        dynamic=True,
    )
    ssl_keystore_location: str | None = key(
        "ssl.keystore.location",
        string,
        None,
        "The file with the broker's private key and its chain of certificates. It is read again "
        "when it changes. A file of a private key that others may read stops the start.",
        since="0.9.0",
        dynamic=True,
    )
    ssl_keystore_password: str | None = key(
        "ssl.keystore.password",
        password,
        None,
        "The password of a PKCS12 keystore.",
        since="0.9.0",
        dynamic=True,
    )
    ssl_key_password: str | None = key(
        "ssl.key.password",
        password,
        None,
        "The password of an encrypted private key in PEM.",
        since="0.9.0",
        dynamic=True,
    )
    ssl_keystore_key: str | None = key(
        "ssl.keystore.key",
        password,
        None,
        "The private key itself in PEM, in place of a file.",
        since="2.7",
        dynamic=True,
    )
    ssl_keystore_certificate_chain: str | None = key(
        "ssl.keystore.certificate.chain",
        password,
        None,
        "The chain of certificates of ssl.keystore.key in PEM, the broker's first.",
        since="2.7",
        dynamic=True,
    )
    ssl_truststore_type: str = key(
        "ssl.truststore.type",
        string,
        "JKS",
        "PEM or PKCS12; seen by the first bytes, as that of the keystore.",
        since="0.9.0",
        dynamic=True,
    )
    ssl_truststore_location: str | None = key(
        "ssl.truststore.location",
        string,
        None,
        "The file with the certificates of those whose clients' certificates are trusted. It is "
        "read again when it changes.",
        since="0.9.0",
        dynamic=True,
    )
    ssl_truststore_password: str | None = key(
        "ssl.truststore.password",
        password,
        None,
        "The password of a PKCS12 truststore.",
        since="0.9.0",
        dynamic=True,
    )
    ssl_truststore_certificates: str | None = key(
        "ssl.truststore.certificates",
        password,
        None,
        "The trusted certificates themselves in PEM, in place of a file.",
        since="2.7",
        dynamic=True,
    )
    ssl_principal_mapping_rules: str = key(
        "ssl.principal.mapping.rules",
        string,
        "DEFAULT",
        "How the subject of a client's certificate becomes the name of its principal: "
        "`RULE:pattern/replacement/` with L or U behind it, separated by commas; the first that "
        "matches all of it holds. DEFAULT takes it as it is. If none matches the connection is "
        "closed.",
        since="2.2",
    )
    sasl_enabled_mechanisms: tuple[str, ...] = key(
        "sasl.enabled.mechanisms",
        names,
        ("GSSAPI",),
        "The mechanisms by which clients may authenticate: GSSAPI, PLAIN, SCRAM-SHA-256, "
        "SCRAM-SHA-512.",
        since="0.10.0",
        dynamic=True,
    )
    sasl_jaas_config: str | None = key(
        "sasl.jaas.config",
        password,
        None,
        "The login module of a mechanism and its options, in the format of JAAS; of PLAIN, the "
        "users "
        'with their passwords (`user_alice="..."`); of GSSAPI, the broker\'s `principal` and the '
        "`keyTab` with its keys. To be given for the mechanism of a listener: "
        "listener.name.NAME.plain.sasl.jaas.config.",
        since="0.10.2",
        dynamic=True,
    )
    sasl_kerberos_service_name: str | None = key(
        "sasl.kerberos.service.name",
        string,
        None,
        "The first part of the broker's Kerberos principal, by which clients find it. The "
        "principal of sasl.jaas.config is what counts: given here as well, it has to be the same.",
        since="0.9.0",
        dynamic=True,
    )
    sasl_kerberos_principal_to_local_rules: tuple[str, ...] = key(
        "sasl.kerberos.principal.to.local.rules",
        names,
        ("DEFAULT",),
        "How a Kerberos principal becomes the name of a user: rules in Kafka's grammar (`RULE:...` "
        "or `DEFAULT`), separated by commas; the first that gives a name holds. DEFAULT is the "
        "first part of principals of krb5.conf's default realm. Whom no rule is for is refused.",
        since="0.9.0",
        dynamic=True,
    )
    sasl_server_callback_handler_class: str | None = key(
        "sasl.server.callback.handler.class",
        class_name,
        None,
        "Which of Kafka's classes checks OAUTHBEARER tokens: "
        "OAuthBearerValidatorCallbackHandler, or OAuthBearerUnsecuredValidatorCallbackHandler, "
        "for development alone, which believes tokens that nobody has signed. Unset it is the "
        "former. No other class is taken.",
        since="2.0",
    )
    sasl_server_max_receive_size: int = key(
        "sasl.server.max.receive.size",
        int32,
        524_288,
        "The largest request, or token, read from a client that is not authenticated yet.",
        check=at_least(1),
        since="3.1",
    )
    connections_max_reauth_ms: int = key(
        "connections.max.reauth.ms",
        int64,
        0,
        "Clients have to authenticate again after so long (KIP-368), or their connection is "
        "closed at the next request; 0 leaves that to the lifetime of their credential.",
        since="2.2",
    )
    connection_failed_authentication_delay_ms: int = key(
        "connection.failed.authentication.delay.ms",
        int32,
        100,
        "How long the answer to a failed authentication, and the end of its connection, is put "
        "off.",
        check=at_least(0),
        since="2.1",
    )
    connections_authentication_timeout_ms: int = key(
        "connections.authentication.timeout.ms",
        int32,
        30_000,
        "A connection that has not come through TLS and SASL by then is closed.",
        check=at_least(1),
        since="triglot",
    )
    connections_authenticating_max: int = key(
        "connections.authenticating.max",
        int32,
        1000,
        "Connections of one listener that may be on their way through TLS and SASL; for one more "
        "the oldest of them is closed.",
        check=at_least(1),
        since="triglot",
    )
    sasl_oauthbearer_jwks_endpoint_url: str | None = key(
        "sasl.oauthbearer.jwks.endpoint.url",
        string,
        None,
        "Where the public keys of the issuer of OAUTHBEARER tokens are, as a JSON Web Key Set: an "
        "https URL, or a file URL.",
        since="3.1",
    )
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int = key(
        "sasl.oauthbearer.jwks.endpoint.refresh.ms",
        int64,
        3_600_000,
        "How old the public keys may become before they are read again.",
        check=at_least(1),
        since="3.1",
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_ms: int = key(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
        int64,
        100,
        "The wait after a first failure to read the public keys; it doubles with each.",
        check=at_least(1),
        since="3.1",
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms: int = key(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
        int64,
        10_000,
        "The longest wait after failures to read the public keys.",
        check=at_least(1),
        since="3.1",
    )
    sasl_oauthbearer_expected_audience: tuple[str, ...] | None = key(
        "sasl.oauthbearer.expected.audience",
        names,
        None,
        "A token has to be for one of these (its claim `aud`). Unset, that is not looked at.",
        since="3.1",
    )
    sasl_oauthbearer_expected_issuer: str | None = key(
        "sasl.oauthbearer.expected.issuer",
        string,
        None,
        "A token has to be from this issuer (its claim `iss`). Unset, that is not looked at.",
        since="3.1",
    )
    sasl_oauthbearer_clock_skew_seconds: int = key(
        "sasl.oauthbearer.clock.skew.seconds",
        int32,
        30,
        "How far the clock of the issuer of tokens may be from ours.",
        check=at_least(0),
        since="3.1",
    )
    sasl_oauthbearer_scope_claim_name: str = key(
        "sasl.oauthbearer.scope.claim.name",
        string,
        "scope",
        "The claim of a token that has its scopes.",
        since="3.1",
    )
    sasl_oauthbearer_expected_scope: tuple[str, ...] | None = key(
        "sasl.oauthbearer.expected.scope",
        names,
        None,
        "A token has to have each of these scopes. Unset, that is not looked at, as in Kafka.",
        since="triglot",
    )
    sasl_oauthbearer_sub_claim_name: str = key(
        "sasl.oauthbearer.sub.claim.name",
        string,
        "sub",
        "The claim of a token that has the name of the principal.",
        since="3.1",
    )

    def __init__(self, settings: BrokerSettings, listener: str, mechanism: str = "") -> None:
        """Those of a listener, or of a mechanism there, by their names."""
        values = {}
        for name, one in self.KEYS.items():
            given = given_for(settings, listener, name, mechanism)
            values[one.attribute] = one.default if given is None else one.parse(given[1].text)
        if settings.security_protocol(listener) == "SASL_SSL":
            own = full_names(listener, "ssl.client.auth")[0]
            if not any(own in layer for layer in settings.layers):
                values["ssl_client_auth"] = "none"
        self._fill(values)


def full_names(listener: str, name: str, mechanism: str = "") -> tuple[str, ...]:
    """The names under which a key can be given for a listener, the most special first."""
    of_listener = f"{LISTENER_PREFIX}{listener.lower()}."
    if mechanism and name.startswith(OF_A_MECHANISM):
        return f"{of_listener}{mechanism.lower()}.{name}", of_listener + name, name
    return of_listener + name, name


def given_for(
    settings: BrokerSettings, listener: str, name: str, mechanism: str = ""
) -> tuple[str, Given] | None:
    """What was given for a key and holds for the listener, with the name it was given under."""
    for full in full_names(listener, name, mechanism):
        for layer in reversed(settings.layers):
            if full in layer:
                return full, layer[full]
    return None
