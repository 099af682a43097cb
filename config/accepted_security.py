"""Keys of Kafka without effect here: TLS and SASL of brokers as clients, tokens, classes of Java.

Those with an effect are in config.listener_security.
"""

from __future__ import annotations

from config.declare import Key, accepted, at_least
from config.kinds import boolean, class_name, double, int16, int32, int64, password, string

SECURITY_KEYS: list[Key] = [
    *accepted(
        "it is for brokers that are clients, or for classes of Java",
        (
            ("ssl.allow.dn.changes", boolean, False),
            ("ssl.allow.san.changes", boolean, False),
            ("ssl.endpoint.identification.algorithm", string, "https"),
            ("ssl.engine.factory.class", class_name, None),
            ("ssl.keymanager.algorithm", string, "SunX509"),
            ("ssl.protocol", string, "TLSv1.3"),
            ("ssl.provider", string, None),
            ("ssl.secure.random.implementation", string, None),
            ("ssl.trustmanager.algorithm", string, "PKIX"),
            ("early.start.listeners", string, None),
            (
                "principal.builder.class",
                class_name,
                "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder",
            ),
            ("sasl.client.callback.handler.class", class_name, None),
            ("sasl.kerberos.kinit.cmd", string, "/usr/bin/kinit"),
            ("sasl.kerberos.min.time.before.relogin", int64, 60_000),
            ("sasl.kerberos.ticket.renew.jitter", double, 0.05),
            ("sasl.kerberos.ticket.renew.window.factor", double, 0.8),
            ("sasl.login.callback.handler.class", class_name, None),
            ("sasl.login.class", class_name, None),
            ("sasl.login.connect.timeout.ms", int32, None),
            ("sasl.login.read.timeout.ms", int32, None),
            ("sasl.login.refresh.buffer.seconds", int16, 300),
            ("sasl.login.refresh.min.period.seconds", int16, 60),
            ("sasl.login.refresh.window.factor", double, 0.8),
            ("sasl.login.refresh.window.jitter", double, 0.05),
            ("sasl.login.retry.backoff.max.ms", int64, 10_000),
            ("sasl.login.retry.backoff.ms", int64, 100),
            ("sasl.mechanism.controller.protocol", string, "GSSAPI"),
            ("sasl.mechanism.inter.broker.protocol", string, "GSSAPI"),
            ("sasl.oauthbearer.token.endpoint.url", string, None),
        ),
    ),
    *accepted(
        "no passwords are kept",
        (
            ("password.encoder.cipher.algorithm", string, "AES/CBC/PKCS5Padding"),
            ("password.encoder.iterations", int32, 4096, at_least(1024)),
            ("password.encoder.key.length", int32, 128, at_least(8)),
            ("password.encoder.keyfactory.algorithm", string, None),
            ("password.encoder.old.secret", password, None),
            ("password.encoder.secret", password, None),
        ),
    ),
    *accepted(
        "no Java classes are loaded",
        (("security.providers", string, None),),
    ),
]
