"""Keys of TLS and SASL: for all listeners, for one, for a mechanism; and what cannot be served."""

from __future__ import annotations

import pytest

from config import BrokerSettings, ConfigError, load
from config.dynamic import with_dynamic
from config.jaas import KRB5_LOGIN_MODULE, PLAIN_LOGIN_MODULE, kerberos_keytab
from config.listener_security import ListenerSecurity

JAAS = f'{PLAIN_LOGIN_MODULE} required user_alice="tell-nobody";'
INSIDE = {
    "listeners": "PLAINTEXT://127.0.0.1:9092,INSIDE://127.0.0.1:9093,OUTSIDE://127.0.0.1:9094",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INSIDE:SASL_PLAINTEXT,OUTSIDE:SSL",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
    "listener.name.inside.plain.sasl.jaas.config": JAAS,
    "ssl.keystore.location": "/keys/all.pem",
}


def kerberos(**changes: str) -> dict[str, str]:
    """The login module of a broker, with changes."""
    options = {
        "useKeyTab": "true",
        "storeKey": "true",
        "keyTab": "/keys/kafka.keytab",
        "principal": "kafka/broker@EXAMPLE.COM",
        **changes,
    }
    words = " ".join(f'{name}="{value}"' for name, value in options.items() if value)
    name = "listener.name.inside.gssapi.sasl.jaas.config"
    return {name: f"{KRB5_LOGIN_MODULE} required {words};"}


def settings(**given: str) -> BrokerSettings:
    return load(overrides={**INSIDE, **given})


def test_protocols_side_by_side_are_those_of_the_map() -> None:
    names = ("PLAINTEXT", "INSIDE", "OUTSIDE")
    assert [settings().security_protocol(name) for name in names] == [
        *("PLAINTEXT", "SASL_PLAINTEXT", "SSL")
    ]


def test_the_key_of_a_listener_holds_over_that_of_all() -> None:
    both = settings(**{"listener.name.outside.ssl.keystore.location": "/keys/outside.pem"})

    assert ListenerSecurity(both, "OUTSIDE").ssl_keystore_location == "/keys/outside.pem"
    assert ListenerSecurity(both, "INSIDE").ssl_keystore_location == "/keys/all.pem"


def test_the_key_of_a_mechanism_holds_over_that_of_its_listener() -> None:
    given = settings(
        **{
            "connections.max.reauth.ms": "1",
            "listener.name.inside.connections.max.reauth.ms": "2",
            "listener.name.inside.scram-sha-512.connections.max.reauth.ms": "3",
        }
    )

    found = [
        ListenerSecurity(given, listener, mechanism).connections_max_reauth_ms
        for listener, mechanism in (
            ("OUTSIDE", "PLAIN"),
            ("INSIDE", "PLAIN"),
            ("INSIDE", "SCRAM-SHA-512"),
        )
    ]
    assert found == [1, 2, 3]


def test_what_is_set_at_run_time_holds_over_the_file() -> None:
    name = "listener.name.outside.ssl.keystore.location"
    before = settings(**{name: "/keys/old.pem"})

    after = with_dynamic(before, all_brokers={}, this_broker={name: "/keys/new.pem"})

    assert ListenerSecurity(after, "OUTSIDE").ssl_keystore_location == "/keys/new.pem"
    assert after != before


def test_the_password_of_a_listener_is_shown_nowhere() -> None:
    assert "tell-nobody" not in repr(settings())
    with pytest.raises(ConfigError) as error:
        settings(**{"listener.name.inside.plain.sasl.jaas.config": JAAS.replace(";", "")})
    assert "jaas.config: wanted a semicolon" in str(error.value)
    assert "tell-nobody" not in str(error.value)


def test_sasl_ssl_asks_for_certificates_only_where_its_own_key_says_so() -> None:
    given = {
        "listeners": "SASL_SSL://127.0.0.1:0",
        "listener.security.protocol.map": "SASL_SSL:SASL_SSL",
        "ssl.client.auth": "required",
        "ssl.truststore.location": "/keys/trusted.pem",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": JAAS,
        "sasl.enabled.mechanisms": "PLAIN",
    }
    assert ListenerSecurity(settings(**given), "SASL_SSL").ssl_client_auth == "none"
    given["listener.name.sasl_ssl.ssl.client.auth"] = "requested"
    assert ListenerSecurity(settings(**given), "SASL_SSL").ssl_client_auth == "requested"


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"ssl.keystore.location": ""}, r"outside\.ssl\.keystore\.location|is missing: TLS needs"),
        (
            {"ssl.keystore.key": "k", "ssl.keystore.certificate.chain": "c"},
            "beside ssl.keystore.location",
        ),
        ({"ssl.keystore.location": "", "ssl.keystore.key": "k"}, "are needed together"),
        ({"ssl.client.auth": "required"}, "no certificate of a client can be checked"),
        ({"ssl.enabled.protocols": "TLSv1.1"}, "has neither TLSv1.2 nor TLSv1.3"),
        ({"ssl.principal.mapping.rules": "RULE:("}, "wanted DEFAULT or RULE"),
        (
            {"sasl.enabled.mechanisms": "DIGEST"},
            "has DIGEST; served are GSSAPI, OAUTHBEARER, PLAIN",
        ),
        (
            {"sasl.enabled.mechanisms": "GSSAPI"},
            r"gssapi\.sasl\.jaas\.config: is missing: .*Krb5LoginModule",
        ),
        (
            {"sasl.enabled.mechanisms": "GSSAPI", "sasl.jaas.config": JAAS},
            "wanted com.sun.security.auth.module.Krb5LoginModule for the mechanism GSSAPI",
        ),
        ({"sasl.enabled.mechanisms": "GSSAPI", **kerberos(useKeyTab="")}, "wanted useKeyTab=true"),
        ({"sasl.enabled.mechanisms": "GSSAPI", **kerberos(storeKey="no")}, "wanted storeKey=true"),
        ({"sasl.enabled.mechanisms": "GSSAPI", **kerberos(keyTab="")}, "wanted keyTab="),
        ({"sasl.enabled.mechanisms": "GSSAPI", **kerberos(principal="")}, "wanted principal="),
        ({"sasl.enabled.mechanisms": "GSSAPI", **kerberos(serviceName="http")}, "is http, and the"),
        (
            {
                **kerberos(),
                "sasl.enabled.mechanisms": "GSSAPI",
                "sasl.kerberos.service.name": "broker",
            },
            "is broker, and the principal in sasl.jaas.config is that of kafka",
        ),
        (
            {
                **kerberos(),
                "sasl.enabled.mechanisms": "GSSAPI",
                "sasl.kerberos.principal.to.local.rules": "RULE:[1:$2],DEFAULT",
            },
            r"to\.local\.rules = .*: wanted \$0 to \$1 in the format",
        ),
        ({"sasl.enabled.mechanisms": ""}, "has no mechanism"),
        (
            {"listener.name.inside.plain.sasl.jaas.config": f"{PLAIN_LOGIN_MODULE} required;"},
            "user",
        ),
        ({"principal.builder.class": "org.example.Builder"}, "no Java classes are loaded"),
        ({"ssl.engine.factory.class": "org.example.Engine"}, "no Java classes are loaded"),
        (
            {"listener.name.inside.plain.sasl.server.callback.handler.class": "org.example.Ldap"},
            "none of those that are done here for PLAIN",
        ),
    ],
)
def test_what_would_protect_less_than_it_says_stops_the_start(
    given: dict[str, str], reason: str
) -> None:
    with pytest.raises(ConfigError, match=reason):
        settings(**given)


def test_the_keytab_of_a_listener_is_that_of_its_login_module() -> None:
    given = settings(**{"sasl.enabled.mechanisms": "GSSAPI", **kerberos(keyTab="FILE:/keys/k")})
    jaas = ListenerSecurity(given, "INSIDE", "GSSAPI").sasl_jaas_config
    assert jaas is not None
    assert kerberos_keytab(jaas)[:2] == ("/keys/k", "kafka/broker@EXAMPLE.COM")


def test_plain_without_users_stops_the_start() -> None:
    without = {name: text for name, text in INSIDE.items() if not name.endswith("jaas.config")}
    with pytest.raises(ConfigError, match=r"inside\.plain\.sasl\.jaas\.config: is missing"):
        load(overrides=without)


def test_a_certificate_of_one_listener_changes_at_run_time_and_not_that_of_all() -> None:
    with pytest.raises(ConfigError, match="can be changed for one listener"):
        with_dynamic(settings(), all_brokers={}, this_broker={"ssl.keystore.location": "/k"})
