"""The rules that the keys of TLS and SASL must fulfil for the listeners that need them.

Nothing is served with less protection than was asked for: what is not understood stops the start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from config.jaas import kerberos_keytab, plain_users
from config.kerberos_rules import parse_kerberos_rules
from config.listener_security import ListenerSecurity, full_names, given_for
from config.principal_rules import parse_rules

if TYPE_CHECKING:
    from collections.abc import Iterator

    from config.broker import BrokerSettings

OAUTHBEARER = "OAUTHBEARER"
MECHANISMS = ("GSSAPI", OAUTHBEARER, "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
"""The mechanisms of SASL that are served."""
UNSECURED_VALIDATOR = (
    "org.apache.kafka.common.security.oauthbearer.internals.unsecured."
    "OAuthBearerUnsecuredValidatorCallbackHandler"
)
CALLBACK_HANDLERS = {
    "PLAIN": ("org.apache.kafka.common.security.plain.internals.PlainServerCallbackHandler",),
    "OAUTHBEARER": (
        UNSECURED_VALIDATOR,
        "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler",
        "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerValidatorCallbackHandler",
    ),
}
"""Classes of Kafka that do on the server what is done here, by the mechanism."""
LOOPBACK = ("localhost", "127.0.0.1", "::1")
OWN_CLASSES = (
    (
        "principal.builder.class",
        "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder",
    ),
    ("ssl.engine.factory.class", "org.apache.kafka.common.security.ssl.DefaultSslEngineFactory"),
)
"""Keys that name a class which decides who a client is, with the class that is as we are."""


def broken_rules(settings: BrokerSettings, listener: str) -> Iterator[tuple[str, str]]:
    """(key, reason) of each rule that does not hold for a listener of this name that is not
    PLAINTEXT."""
    protocol = settings.security_protocol(listener) or ""
    for key, own in OWN_CLASSES:
        given = given_for(settings, listener, key)
        if given is not None and given[1].text.strip() not in ("", own):
            yield (
                given[0],
                "no Java classes are loaded, and who a client is would not be what it says",
            )
    security = ListenerSecurity(settings, listener)
    if protocol.endswith("SSL"):
        yield from broken_rules_of_tls(settings, listener)
    if protocol.startswith("SASL"):
        for mechanism, name, reason in _sasl(settings, listener, security.sasl_enabled_mechanisms):
            given = given_for(settings, listener, name, mechanism)
            yield given[0] if given else full_names(listener, name, mechanism)[0], reason


def broken_rules_of_tls(settings: BrokerSettings, listener: str) -> Iterator[tuple[str, str]]:
    """Those of the keys of TLS."""
    for name, reason in _tls(ListenerSecurity(settings, listener)):
        given = given_for(settings, listener, name)
        yield given[0] if given else full_names(listener, name)[0], reason


def _tls(security: ListenerSecurity) -> Iterator[tuple[str, str]]:
    key, chain = security.ssl_keystore_key, security.ssl_keystore_certificate_chain
    if security.ssl_keystore_location:
        if key or chain:
            yield "ssl.keystore.key", "is given beside ssl.keystore.location; one of them is needed"
    elif not key and not chain:
        yield (
            "ssl.keystore.location",
            "is missing: TLS needs a private key and its certificates (a PEM or PKCS12 file, or "
            "ssl.keystore.key with ssl.keystore.certificate.chain)",
        )
    elif not (key and chain):
        yield "ssl.keystore.key", "and ssl.keystore.certificate.chain are needed together"
    if security.ssl_truststore_location and security.ssl_truststore_certificates:
        yield "ssl.truststore.certificates", "is given beside ssl.truststore.location"
    trusts = security.ssl_truststore_location or security.ssl_truststore_certificates
    if security.ssl_client_auth != "none" and not trusts:
        yield (
            "ssl.client.auth",
            f"is {security.ssl_client_auth}, and there is no ssl.truststore.location, without "
            "which no certificate of a client can be checked",
        )
    if not {"TLSv1.2", "TLSv1.3"} & set(security.ssl_enabled_protocols):
        yield "ssl.enabled.protocols", "has neither TLSv1.2 nor TLSv1.3, and no other is offered"
    try:
        parse_rules(security.ssl_principal_mapping_rules)
    except ValueError as error:
        yield "ssl.principal.mapping.rules", f"wanted {error}"


def _sasl(
    settings: BrokerSettings, listener: str, mechanisms: tuple[str, ...]
) -> Iterator[tuple[str, str, str]]:
    """Mechanism, key and reason."""
    for mechanism in mechanisms or ("",):
        if mechanism not in MECHANISMS:
            yield (
                "",
                "sasl.enabled.mechanisms",
                f"has {mechanism or 'no mechanism'}; served are {', '.join(MECHANISMS)}",
            )
            continue
        security = ListenerSecurity(settings, listener, mechanism)
        handler = security.sasl_server_callback_handler_class
        if handler and handler not in CALLBACK_HANDLERS.get(mechanism, ()):
            yield (
                mechanism,
                "sasl.server.callback.handler.class",
                f"is none of those that are done here for {mechanism}; no Java classes are loaded",
            )
        if mechanism == "PLAIN":
            yield from _plain(security.sasl_jaas_config)
        elif mechanism == "GSSAPI":
            yield from _kerberos(security)
        elif mechanism == OAUTHBEARER and handler != UNSECURED_VALIDATOR:
            yield from _oauthbearer(security.sasl_oauthbearer_jwks_endpoint_url)
        elif mechanism == OAUTHBEARER and "unsecuredValidator" in (security.sasl_jaas_config or ""):
            yield (
                mechanism,
                "sasl.jaas.config",
                "has options unsecuredValidator...; what a token has to say is set by the keys "
                "sasl.oauthbearer.*, whether it is signed or not",
            )


def _plain(jaas: str | None) -> Iterator[tuple[str, str, str]]:
    key = "sasl.jaas.config"
    if jaas is None:
        yield "PLAIN", key, "is missing: it has the users of PLAIN with their passwords"
        return
    try:
        users = plain_users(jaas)
    except ValueError as error:
        yield "PLAIN", key, f"wanted {error}"
        return
    if not users:
        yield "PLAIN", key, 'has no user; wanted user_NAME="PASSWORD"'


def _kerberos(security: ListenerSecurity) -> Iterator[tuple[str, str, str]]:
    try:
        parse_kerberos_rules(security.sasl_kerberos_principal_to_local_rules)
    except ValueError as error:
        yield "GSSAPI", "sasl.kerberos.principal.to.local.rules", f"wanted {error}"
    jaas = security.sasl_jaas_config
    if jaas is None:
        yield (
            "GSSAPI",
            "sasl.jaas.config",
            "is missing: for GSSAPI it has Krb5LoginModule with the broker's principal and keyTab "
            "(java.security.auth.login.config is not read)",
        )
        return
    try:
        keytab = kerberos_keytab(jaas)
    except ValueError as error:
        yield "GSSAPI", "sasl.jaas.config", f"wanted {error}"
        return
    service = keytab.principal.partition("@")[0].partition("/")[0]
    for given in (security.sasl_kerberos_service_name, keytab.service):
        if given and given != service:
            yield (
                "GSSAPI",
                "sasl.kerberos.service.name",
                f"(or serviceName) is {given}, and the principal in sasl.jaas.config is that of "
                f"{service}: clients would ask for tickets that can't be read",
            )


def _oauthbearer(url: str | None) -> Iterator[tuple[str, str, str]]:
    key = "sasl.oauthbearer.jwks.endpoint.url"
    if not url:
        yield (
            "OAUTHBEARER",
            key,
            "is missing: without the issuer's public keys no token can be checked",
        )
        return
    parts = urlsplit(url)
    if parts.scheme not in ("file", "https") and not (
        parts.scheme == "http" and parts.hostname in LOOPBACK
    ):
        yield (
            "OAUTHBEARER",
            key,
            "wanted an https or a file URL (http on this machine alone): who could change the "
            "keys on their way would be let in",
        )
