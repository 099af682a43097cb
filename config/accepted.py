"""Every key of Kafka 3.9 that has no attribute in BrokerSettings, and names that only look unknown.

A file written for Kafka starts unchanged: these keys are known, their values are checked for
their kind, and the reason why they do nothing is shown. Not imported unless such a key occurs.
"""

from __future__ import annotations

from config.accepted_cluster import CLUSTER_KEYS
from config.accepted_security import SECURITY_KEYS
from config.accepted_service import SERVICE_KEYS
from config.broker import BrokerSettings
from config.declare import Key, accepted
from config.kinds import string
from config.listener_security import OF_A_MECHANISM, ListenerSecurity
from config.listeners import LISTENER_PREFIX

ACCEPTED: dict[str, Key] = {key.name: key for key in (*CLUSTER_KEYS, *SERVICE_KEYS, *SECURITY_KEYS)}

CHANGED_AT_RUN_TIME = frozenset(
    {
        "log.cleaner.io.buffer.load.factor",
        "log.cleaner.io.buffer.size",
        "log.cleaner.threads",
        "metric.reporters",
        "num.io.threads",
        "num.network.threads",
        "num.replica.fetchers",
        "principal.builder.class",
        "remote.fetch.max.wait.ms",
        "remote.log.index.file.cache.total.size.bytes",
        "remote.log.manager.copy.max.bytes.per.second",
        "remote.log.manager.fetch.max.bytes.per.second",
        "sasl.kerberos.kinit.cmd",
        "sasl.kerberos.min.time.before.relogin",
        "sasl.kerberos.ticket.renew.jitter",
        "sasl.kerberos.ticket.renew.window.factor",
        "sasl.login.refresh.buffer.seconds",
        "sasl.login.refresh.min.period.seconds",
        "sasl.login.refresh.window.factor",
        "sasl.login.refresh.window.jitter",
        "sasl.mechanism.inter.broker.protocol",
        "ssl.endpoint.identification.algorithm",
        "ssl.engine.factory.class",
        "ssl.keymanager.algorithm",
        "ssl.protocol",
        "ssl.provider",
        "ssl.secure.random.implementation",
        "ssl.trustmanager.algorithm",
    }
)
"""Keys that Kafka 3.9 changes at run time: a change of them is accepted, without effect as well."""

for _name in CHANGED_AT_RUN_TIME:
    ACCEPTED[_name].dynamic = True

PLUGIN_PREFIXES = {
    "rsm.config.": "there is no tiered storage",
    "rlmm.config.": "there is no tiered storage",
    "client.quota.callback.": "no Java classes are loaded",
    "authorizer.zookeeper.": "there is no ZooKeeper",
}
"""How keys begin that classes of plug-ins read themselves."""
OF_ONE_LISTENER = ("as.version", "max.connections", "max.connection.creation.rate")
"""Keys that can be given for one listener, besides those of TLS and SASL."""
ONE_LISTENER = "settings of a single listener are not served; the key without the prefix is"

# Keys that Kafka had once and 3.9 does not know any more, with what takes their place.
REMOVED = {
    "advertised.host.name": "use advertised.listeners=PLAINTEXT://HOST:PORT",
    "advertised.port": "use advertised.listeners=PLAINTEXT://HOST:PORT",
    "host.name": "use listeners=PLAINTEXT://HOST:PORT",
    "port": "use listeners=PLAINTEXT://HOST:PORT",
    "quota.consumer.default": "quotas are set with kafka-configs.sh",
    "quota.producer.default": "quotas are set with kafka-configs.sh",
    "log.cleanup.interval.mins": "use log.retention.check.interval.ms",
    "log.delete.delay.ms": "use log.segment.delete.delay.ms",
    "replica.lag.max.messages": "there are no other replicas; leave it out",
    "zookeeper.sync.time.ms": "there is no ZooKeeper; leave it out",
}


def accepted_key(name: str) -> Key | None:
    """The declaration of a key that is none of BrokerSettings, or None if there is no such key.

    A key of one listener (`listener.name.internal.ssl.keystore.location`, with the SASL
    mechanism before the key where there is one) is known when the key behind it is.
    """
    if name in ACCEPTED:
        return ACCEPTED[name]
    if name in ListenerSecurity.KEYS:
        return ListenerSecurity.KEYS[name]
    for prefix, reason in PLUGIN_PREFIXES.items():
        if name.startswith(prefix):
            return accepted(reason, [(name, string, None)])[0]
    if name.startswith(LISTENER_PREFIX):
        parts = name.removeprefix(LISTENER_PREFIX).split(".")
        for first in range(1, min(3, len(parts))):
            one = ".".join(parts[first:])
            if first == 2 and not one.startswith(OF_A_MECHANISM):
                continue
            if one in ListenerSecurity.KEYS:
                return ListenerSecurity.KEYS[one].of_one_listener(name)
            if one in OF_ONE_LISTENER:
                return BrokerSettings.KEYS[one].of_one_listener(name)
            behind = ACCEPTED.get(one) or BrokerSettings.KEYS.get(one)
            if behind is not None:
                reason = behind.unused or ONE_LISTENER
                (key,) = accepted(reason, [(name, behind.kind, None, behind.check)])
                key.dynamic = behind.dynamic
                return key
    return None
