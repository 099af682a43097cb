"""Login modules of JAAS, as `sasl.jaas.config` has them.

    org.apache.kafka.common.security.plain.PlainLoginModule required
        username="broker" password="secret" user_alice="secret";

A class, `required`, options as NAME=VALUE, and a semicolon. Values stand in quotes, or are words.
The text holds passwords: no error repeats a part of it.
"""

from __future__ import annotations

import re
from typing import NamedTuple

PLAIN_LOGIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
KRB5_LOGIN_MODULE = "com.sun.security.auth.module.Krb5LoginModule"
USER_PREFIX = "user_"
"""How the options of PlainLoginModule begin that hold the passwords of users."""

_FLAGS = ("required", "requisite", "sufficient", "optional")
_TOKEN = re.compile(
    r"""\s+ | //[^\n]* | /\*.*?\*/          # between words
      | (?P<quoted> "(?:[^"\\]|\\.)*" )
      | (?P<word> [^\s"=;]+ )
      | (?P<sign> [=;] )""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "b": "\b"}


class LoginModule(NamedTuple):
    """A class with its options, whose values no text of it has."""

    name: str
    options: dict[str, str]

    def __repr__(self) -> str:
        return f"LoginModule({self.name}, {', '.join(self.options)})"


def parse_login_module(text: str) -> LoginModule:
    """The one login module in a text. Raises ValueError, which tells nothing of the text."""
    words = list(_words(text))
    if len(words) < 3 or words[1][1].lower() not in _FLAGS:
        raise ValueError("a class, `required`, options and a semicolon (JAAS)")
    if words.pop() != ("sign", ";"):
        raise ValueError("a semicolon at the end of a login module (JAAS)")
    options: dict[str, str] = {}
    rest = words[2:]
    for number in range(0, len(rest), 3):
        match rest[number : number + 3]:
            case [("word", name), ("sign", "="), (("quoted" | "word"), value)]:
                options[name] = value
            case _:
                count = number // 3 + 1
                raise ValueError(f'NAME="VALUE" as option {count} of one login module (JAAS)')
    return LoginModule(words[0][1], options)


def plain_users(text: str) -> dict[str, str]:
    """Passwords of the users in the text of a PlainLoginModule. Raises ValueError."""
    module = parse_login_module(text)
    if module.name != PLAIN_LOGIN_MODULE:
        raise ValueError(f"{PLAIN_LOGIN_MODULE} for the mechanism PLAIN")
    return {
        name.removeprefix(USER_PREFIX): password
        for name, password in module.options.items()
        if name.startswith(USER_PREFIX) and name != USER_PREFIX
    }


class Keytab(NamedTuple):
    """A file with the keys of a Kerberos principal."""

    path: str
    principal: str
    service: str | None
    """The option serviceName, which can stand for sasl.kerberos.service.name."""


def kerberos_keytab(text: str) -> Keytab:
    """What the text of a Krb5LoginModule of a broker says. Raises ValueError."""
    options = kerberos_options(text)
    for name in ("useKeyTab", "storeKey"):
        if options.get(name, "").lower() != "true":
            raise ValueError(f"{name}=true: a broker has its keys in a file (JAAS)")
    path, principal = keytab_path(options), options.get("principal", "")
    if not path or not principal:
        missing = 'principal="kafka/HOST@REALM"' if path else 'keyTab="/path/to/kafka.keytab"'
        raise ValueError(f"{missing} (JAAS)")
    return Keytab(path, principal, options.get("serviceName"))


def kerberos_options(text: str) -> dict[str, str]:
    """The options of a Krb5LoginModule. Raises ValueError."""
    module = parse_login_module(text)
    if module.name != KRB5_LOGIN_MODULE:
        raise ValueError(f"{KRB5_LOGIN_MODULE} for the mechanism GSSAPI")
    return module.options


def keytab_path(options: dict[str, str]) -> str:
    """The option keyTab as a path, "" without one."""
    return options.get("keyTab", "").removeprefix("FILE:")


def _words(text: str) -> list[tuple[str, str]]:
    found = []
    position = 0
    while position < len(text):
        token = _TOKEN.match(text, position)
        if token is None:
            raise ValueError("the closing quote of a value (JAAS)")
        position = token.end()
        kind = token.lastgroup
        if kind == "quoted":
            found.append((kind, _ESCAPE.sub(_unescaped, token[0][1:-1])))
        elif kind is not None:
            found.append((kind, token[0]))
    return found


def _unescaped(found: re.Match[str]) -> str:
    return _ESCAPED.get(found[1], found[1])
