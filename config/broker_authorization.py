"""Keys of the broker: whether and how access is checked."""

from __future__ import annotations

from config.declare import Settings, at_least, key, one_of
from config.kinds import Kind, boolean, int64, password, string

AUTHORIZERS = (
    "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "kafka.security.authorizer.AclAuthorizer",
    "kafka.security.auth.SimpleAclAuthorizer",
)
"""Kafka's own, of today and of its years with ZooKeeper: all have the same rules."""


def _principals(text: str) -> tuple[str, ...]:
    found = tuple(entry.strip() for entry in text.split(";") if entry.strip())
    for entry in found:
        kind, colon, name = entry.partition(":")
        if not (kind and colon and name):
            raise ValueError(f"Type:name entries separated by semicolons, not {entry!r}")
    return found


principals: Kind[tuple[str, ...]] = Kind("string", 2, _principals, ";".join)


class AuthorizationSettings(Settings):
    """The settings of access rules and of delegation tokens."""

    authorizer_class_name: str = key(
        "authorizer.class.name",
        string,
        "",
        "Access is checked by the rules in the metadata log if one of Kafka's authorizers is "
        "named here. Empty, everybody may do everything.",
        check=one_of("", *AUTHORIZERS),
        since="0.9.0",
    )
    super_users: tuple[str, ...] = key(
        "super.users",
        principals,
        (),
        "Who may do everything, whatever the rules say: User:name, separated by semicolons.",
        since="0.9.0",
    )
    allow_everyone_if_no_acl_found: bool = key(
        "allow.everyone.if.no.acl.found",
        boolean,
        False,
        "Whether a resource that no rule names is open to everybody.",
        since="0.9.0",
    )
    delegation_token_secret_key: str | None = key(
        "delegation.token.secret.key",
        password,
        None,
        "What the secrets of delegation tokens are made with. Without it there are none.",
        since="2.8.0",
    )
    delegation_token_master_key: str | None = key(
        "delegation.token.master.key",
        password,
        None,
        "The name of delegation.token.secret.key up to Kafka 2.7.",
        since="1.1.0",
    )
    delegation_token_max_lifetime_ms: int = key(
        "delegation.token.max.lifetime.ms",
        int64,
        604_800_000,
        "The age beyond which a delegation token cannot be renewed.",
        check=at_least(1),
        since="1.1.0",
    )
    delegation_token_expiry_time_ms: int = key(
        "delegation.token.expiry.time.ms",
        int64,
        86_400_000,
        "How long a delegation token is good before it has to be renewed.",
        check=at_least(1),
        since="1.1.0",
    )
    delegation_token_expiry_check_interval_ms: int = key(
        "delegation.token.expiry.check.interval.ms",
        int64,
        3_600_000,
        "How often expired delegation tokens are removed; nobody logs in with one meanwhile.",
        check=at_least(1),
        since="1.1.0",
    )

    @property
    def token_secret_key(self) -> str | None:
        """The secret key of delegation tokens by whichever name it was given."""
        return self.delegation_token_secret_key or self.delegation_token_master_key
