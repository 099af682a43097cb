"""Keys of the broker: whether and how access is checked."""

from __future__ import annotations

from config.declare import Settings, key, one_of
from config.kinds import Kind, boolean, string

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
    """The settings of access rules."""

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
