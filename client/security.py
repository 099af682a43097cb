"""How a client proves who it is, and whom it believes: the security keys of Kafka's clients.

They stand in a file as Kafka's own tools take it (`--command-config client.properties`). Keys of
other matters in it are left alone, so that a file that exists will do.
"""

from __future__ import annotations

import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from client.errors import WrongUse
from client.token_endpoint import TokenEndpoint, is_safe
from config.errors import ConfigError, nearest_of
from config.jaas import KRB5_LOGIN_MODULE, kerberos_options, keytab_path, parse_login_module
from config.keystores import KeystoreError, require_private
from config.listeners import PROTOCOLS
from config.properties import parse_properties

if TYPE_CHECKING:
    from collections.abc import Mapping

MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "OAUTHBEARER": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule",
    "GSSAPI": KRB5_LOGIN_MODULE,
}
"""The login module of each mechanism that is spoken here."""
SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
TOKEN_URL = "sasl.oauthbearer.token.endpoint.url"
CLIENT_ID = "sasl.oauthbearer.client.credentials.client.id"
CLIENT_SECRET = "sasl.oauthbearer.client.credentials.client.secret"
SCOPE = "sasl.oauthbearer.scope"
SERVICE_NAME = "sasl.kerberos.service.name"
FILE_MAX_BYTES = 1 << 20

KEYS = frozenset({
    "security.protocol", "sasl.mechanism", "sasl.jaas.config", TOKEN_URL, SERVICE_NAME,
    CLIENT_ID, CLIENT_SECRET, SCOPE,
    "ssl.truststore.type", "ssl.truststore.location", "ssl.truststore.password",
    "ssl.truststore.certificates", "ssl.keystore.type", "ssl.keystore.location",
    "ssl.keystore.password", "ssl.keystore.key", "ssl.keystore.certificate.chain",
    "ssl.key.password", "ssl.enabled.protocols", "ssl.cipher.suites",
    "ssl.endpoint.identification.algorithm",
})  # fmt: skip
"""Those that do something here."""
WITHOUT_EFFECT = (
    "security.providers",
    "ssl.engine.factory.class",
    "ssl.keymanager.algorithm",
    "ssl.protocol",
    "ssl.provider",
    "ssl.secure.random.implementation",
    "ssl.trustmanager.algorithm",
    "sasl.client.callback.handler.class",
    "sasl.kerberos.",
    "sasl.login.",
    "sasl.oauthbearer.",
)
"""Keys of Java, or how they begin, and of mechanisms that are not spoken here: taken."""
OF_SECURITY = ("security.", "ssl.", "sasl.")


@dataclass(frozen=True, repr=False)
class ClientSecurity:
    """The security of a client. A pickled copy has the path of the file alone, and reads it again
    where it is made; no text of it has a password."""

    origin: str = ""
    """The path of the file; "" where it is made otherwise, and can't be pickled."""
    protocol: str = "PLAINTEXT"
    mechanism: str = ""
    """Of SASL; "" without."""
    user: str = ""
    password: str = ""
    by_delegation_token: bool = False
    """Whether `user` and `password` are a delegation token's id and HMAC (KIP-48)."""
    token_path: str = ""
    """The file with the token of OAUTHBEARER, read at each authentication."""
    token_endpoint: TokenEndpoint | None = None
    """Who gives tokens of OAUTHBEARER, where they are in no file."""
    kerberos_service: str = ""
    """The broker's principal before its host. `user` is our own with GSSAPI, "" for that of the
    tickets."""
    keytab_path: str = ""
    """The file with our key in Kerberos."""
    ticket_cache: str = ""
    """Where kinit has left the ticket, "" for Kerberos' own choice."""
    ssl_truststore_type: str = "JKS"
    ssl_truststore_location: str | None = None
    ssl_truststore_password: str | None = None
    ssl_truststore_certificates: str | None = None
    ssl_keystore_type: str = "JKS"
    ssl_keystore_location: str | None = None
    ssl_keystore_password: str | None = None
    ssl_keystore_key: str | None = None
    ssl_keystore_certificate_chain: str | None = None
    ssl_key_password: str | None = None
    ssl_enabled_protocols: tuple[str, ...] = ("TLSv1.2", "TLSv1.3")
    ssl_cipher_suites: tuple[str, ...] = ()
    check_host: bool = True
    """Whether the broker's certificate has to be for the host that is connected to."""
    given: frozenset[str] = field(default=frozenset())
    """The names of the security keys in the file."""

    @property
    def has_tls(self) -> bool:
        return self.protocol in ("SSL", "SASL_SSL")

    @property
    def has_sasl(self) -> bool:
        return self.protocol.startswith("SASL_")

    @property
    def described(self) -> str:
        """For errors: what it does, and where that is set."""
        how = f"{self.protocol} with {self.mechanism}" if self.mechanism else self.protocol
        return f"{how}, as {self.origin} says" if self.origin else how

    def __repr__(self) -> str:
        return f"ClientSecurity({self.described})"

    def __reduce__(self) -> tuple[object, ...]:
        if not self.origin:
            raise TypeError("security that is not read from a file is not pickled: it has secrets")
        return read_client_security, (self.origin,)


def read_client_security(path: str) -> ClientSecurity:
    """What a properties file of a client says of security. Raises WrongUse, which has no secret."""
    where = Path(path).absolute()
    try:
        with where.open("rb") as file:
            data = file.read(FILE_MAX_BYTES + 1)
        mode = where.stat().st_mode
    except OSError as error:
        raise WrongUse(f"{path} can't be read: {error.strerror or error}") from None
    if len(data) > FILE_MAX_BYTES:
        raise WrongUse(f"{path} has more than {FILE_MAX_BYTES} bytes; that is no client.properties")
    try:
        entries = {entry.name: entry.text for entry in parse_properties(data, path)}
    except ConfigError as error:
        where_from = ", ".join(problem.source for problem in error.problems)
        raise WrongUse(f"{where_from}: \\u without four hexadecimal digits") from None
    for name in ("sasl.jaas.config", CLIENT_SECRET, "ssl.keystore.key", "ssl.key.password"):
        if name in entries and mode & (stat.S_IROTH | stat.S_IWOTH):
            raise WrongUse(
                f"{path} has a secret ({name}) and can be read or written by every user of this "
                f"machine; chmod o-rwx {path}"
            )
    return parse_client_security(entries, origin=str(where))


def parse_client_security(entries: Mapping[str, str], *, origin: str = "") -> ClientSecurity:
    """What the properties of a client say of security. Raises WrongUse, which has no secret."""
    at = f"{origin}: " if origin else ""
    texts = {name: text.strip() for name, text in entries.items() if name.startswith(OF_SECURITY)}
    for name in texts:
        if name not in KEYS and not name.startswith(WITHOUT_EFFECT):
            nearest = nearest_of(name, KEYS)
            hint = f"; did you mean {nearest}?" if nearest else ""
            raise WrongUse(f"{at}{name} is no key of security of Kafka's clients{hint}")
    protocol = texts.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in PROTOCOLS:
        raise WrongUse(f"{at}security.protocol is {protocol}, wanted {', '.join(PROTOCOLS)}")
    mechanism = user = password = token_path = ""
    by_delegation_token = False
    service = keytab = tickets = ""
    endpoint = None
    if protocol.startswith("SASL_"):
        mechanism = texts.get("sasl.mechanism", "GSSAPI").upper()
        if mechanism not in MODULES:
            raise WrongUse(f"{at}sasl.mechanism is {mechanism}, wanted {', '.join(MODULES)}")
        jaas = texts.get("sasl.jaas.config")
        if mechanism == "GSSAPI":
            service, user, keytab, tickets = _kerberos(at, jaas, texts.get(SERVICE_NAME, ""))
        else:
            user, password, by_delegation_token = _login(at, mechanism, jaas)
        if mechanism == "OAUTHBEARER":
            token_path, endpoint = _token_source(at, texts, jaas or "")
    versions = _names(texts.get("ssl.enabled.protocols", "")) or ("TLSv1.2", "TLSv1.3")
    if not {"TLSv1.2", "TLSv1.3"} & set(versions):
        raise WrongUse(f"{at}ssl.enabled.protocols has neither TLSv1.2 nor TLSv1.3")
    return ClientSecurity(
        origin=origin,
        protocol=protocol,
        mechanism=mechanism,
        user=user,
        password=password,
        by_delegation_token=by_delegation_token,
        token_path=token_path,
        token_endpoint=endpoint,
        kerberos_service=service,
        keytab_path=keytab,
        ticket_cache=tickets,
        ssl_truststore_type=texts.get("ssl.truststore.type", "JKS"),
        ssl_truststore_location=texts.get("ssl.truststore.location") or None,
        ssl_truststore_password=texts.get("ssl.truststore.password"),
        ssl_truststore_certificates=texts.get("ssl.truststore.certificates"),
        ssl_keystore_type=texts.get("ssl.keystore.type", "JKS"),
        ssl_keystore_location=texts.get("ssl.keystore.location") or None,
        ssl_keystore_password=texts.get("ssl.keystore.password"),
        ssl_keystore_key=texts.get("ssl.keystore.key"),
        ssl_keystore_certificate_chain=texts.get("ssl.keystore.certificate.chain"),
        ssl_key_password=texts.get("ssl.key.password"),
        ssl_enabled_protocols=versions,
        ssl_cipher_suites=_names(texts.get("ssl.cipher.suites", "")),
        check_host=texts.get("ssl.endpoint.identification.algorithm", "https") != "",
        given=frozenset(texts),
    )


def _login(at: str, mechanism: str, jaas: str | None) -> tuple[str, str, bool]:
    """User and password of a login module, empty with OAUTHBEARER; and whether they are a
    delegation token."""
    example = f'{MODULES[mechanism]} required username="alice" password="...";'
    if mechanism == "OAUTHBEARER":
        example = f"{MODULES[mechanism]} required;"
    if jaas is None:
        raise WrongUse(f"{at}sasl.jaas.config is wanted for {mechanism}: {example}")
    try:
        module = parse_login_module(jaas)
    except ValueError as error:
        raise WrongUse(f"{at}sasl.jaas.config lacks {error}, as in {example}") from None
    if module.name != MODULES[mechanism]:
        raise WrongUse(
            f"{at}sasl.jaas.config is of {module.name}, and sasl.mechanism is {mechanism}, whose "
            f"module is {MODULES[mechanism]}"
        )
    if mechanism == "OAUTHBEARER":
        return "", "", False
    by_delegation_token = module.options.get("tokenauth", "").lower() == "true"
    if by_delegation_token and mechanism not in SCRAM:
        raise WrongUse(f"{at}sasl.jaas.config: tokenauth is for SCRAM, and not for {mechanism}")
    user, password = module.options.get("username", ""), module.options.get("password", "")
    if not user or not password:
        missing = "password" if user else "username"
        raise WrongUse(f"{at}sasl.jaas.config has no {missing}, as in {example}")
    return user, password, by_delegation_token


def _kerberos(at: str, jaas: str | None, service: str) -> tuple[str, str, str, str]:
    """The broker's service, our principal, its keytab, and the cache of tickets. As with kinit, no
    login module means the tickets that are there."""
    try:
        options = kerberos_options(jaas) if jaas is not None else {}
    except ValueError as error:
        raise WrongUse(f"{at}sasl.jaas.config lacks {error}") from None
    in_jaas = options.get("serviceName", "")
    if service and in_jaas and service != in_jaas:
        raise WrongUse(
            f"{at}{SERVICE_NAME} is {service}, and serviceName in sasl.jaas.config another"
        )
    service = service or in_jaas
    if not service:
        raise WrongUse(f"{at}{SERVICE_NAME} is wanted for GSSAPI: what the broker is, as in kafka")
    user, keytab = options.get("principal", ""), ""
    if options.get("useKeyTab", "").lower() == "true":
        keytab = keytab_path(options)
        if not (keytab and user):
            raise WrongUse(f"{at}sasl.jaas.config with useKeyTab lacks keyTab or principal")
        try:
            require_private(keytab, "keys of Kerberos")
        except OSError as error:
            raise WrongUse(f"{at}{keytab} can't be read: {error.strerror or error}") from None
        except KeystoreError as error:
            raise WrongUse(f"{at}{error}") from None
    return service, user, keytab, options.get("ticketCache", "") if not keytab else ""


def _token_source(at: str, texts: Mapping[str, str], jaas: str) -> tuple[str, TokenEndpoint | None]:
    """The path of the file with a token, or the endpoint that gives them."""
    url = texts.get(TOKEN_URL, "")
    options = parse_login_module(jaas).options
    path = url.removeprefix("file://")
    if path != url and path.startswith("/"):
        if options:
            raise WrongUse(f"{at}sasl.jaas.config has options, and the token is in {path}")
        return path, None
    if not is_safe(url):
        raise WrongUse(
            f"{at}{TOKEN_URL} names no file with a token, as in file:///run/secrets/token, and no "
            "https URL of an issuer (http on this machine alone: a secret is sent there)"
        )
    unknown = options.keys() - {"clientId", "clientSecret", "scope"}
    if unknown:
        raise WrongUse(f"{at}sasl.jaas.config has {len(unknown)} options that do nothing here")
    client_id = texts.get(CLIENT_ID) or options.get("clientId", "")
    client_secret = texts.get(CLIENT_SECRET) or options.get("clientSecret", "")
    if not client_id or not client_secret:
        missing = CLIENT_SECRET if client_id else CLIENT_ID
        raise WrongUse(f"{at}{missing} is wanted where {TOKEN_URL} is that of an issuer")
    scope = texts.get(SCOPE) or options.get("scope", "")
    return "", TokenEndpoint(url, client_id, client_secret, scope)


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())
