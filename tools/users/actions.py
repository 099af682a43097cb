"""What `triglot users` does."""

from __future__ import annotations

import getpass
import hashlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TextIO

from protocol.client import said
from protocol.errors import ErrorCode
from protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
)
from protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from tools.errors import NotDone
from tools.printing import print_json, print_lines, table
from tools.users.mechanisms import MECHANISMS

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable

    from tools.cluster import Cluster

    Arguments = argparse.Namespace

NUMBERS = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
NAMES = {number: name for name, number in NUMBERS.items()}
HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
SALT_BYTES = 24
ITERATIONS_MIN, ITERATIONS_MAX = 4096, 16384
"""The bounds that brokers have."""
PASSWORD_MAX = 4096

Request = AlterUserScramCredentialsRequest


class Credential(NamedTuple):
    """That a user can authenticate by a mechanism."""

    user: str
    mechanism: str
    iterations: int


def run_add(cluster: Cluster, arguments: Arguments) -> None:
    """A user with a password; one mechanism after the other, for a request has one change for each
    user."""
    if not ITERATIONS_MIN <= arguments.iterations <= ITERATIONS_MAX:
        raise NotDone(
            f"--iterations is {arguments.iterations}, wanted {ITERATIONS_MIN} to {ITERATIONS_MAX}"
        )
    if not arguments.name:
        raise NotDone("the name of a user is empty")
    password = _password(arguments.password_file, arguments.name).encode()
    mechanisms = arguments.mechanism or MECHANISMS
    for mechanism in mechanisms:
        salt = os.urandom(SALT_BYTES)
        salted = hashlib.pbkdf2_hmac(HASHES[mechanism], password, salt, arguments.iterations)
        upsertion = Request.Upsertion(
            name=arguments.name,
            mechanism=NUMBERS[mechanism],
            iterations=arguments.iterations,
            salt=salt,
            salted_password=salted,
        )
        _alter(cluster, Request(deletions=[], upsertions=[upsertion]))
    _tell(arguments, "added", mechanisms)


def run_remove(cluster: Cluster, arguments: Arguments) -> None:
    """The credentials of a user, or those of one mechanism."""
    has = {one.mechanism for one in _described(cluster, [arguments.name])}
    mechanisms = [one for one in arguments.mechanism or MECHANISMS if one in has]
    if not mechanisms:
        wanted = " or ".join(arguments.mechanism or MECHANISMS)
        raise NotDone(f"there is no user '{arguments.name}' with {wanted}")
    for mechanism in mechanisms:
        deletion = Request.Deletion(name=arguments.name, mechanism=NUMBERS[mechanism])
        _alter(cluster, Request(deletions=[deletion], upsertions=[]))
    _tell(arguments, "removed", mechanisms)


def run_list(cluster: Cluster, arguments: Arguments) -> None:
    """All users."""
    found = sorted(_described(cluster, None))
    if arguments.json:
        print_json({"users": [one._asdict() for one in found]})
    elif found:
        print_lines(table(("USER", "MECHANISM", "ITERATIONS"), found))
    else:
        print_lines(["there are no users"])


def _tell(arguments: Arguments, what: str, mechanisms: Iterable[str]) -> None:
    if arguments.json:
        print_json({"user": arguments.name, "mechanisms": list(mechanisms), "done": what})
    else:
        print_lines([f"{what} user '{arguments.name}': {', '.join(mechanisms)}"])


def _alter(cluster: Cluster, request: Request) -> None:
    answer = cluster.change(request, AlterUserScramCredentialsResponse)
    for result in answer.results:
        if result.error_code:
            why = f" ({result.error_message})" if result.error_message else ""
            raise NotDone(f"user '{result.user}': {said(result.error_code)}{why}")


def _described(cluster: Cluster, names: list[str] | None) -> list[Credential]:
    kind = DescribeUserScramCredentialsRequest
    users = None if names is None else [kind.User(name=name) for name in names]
    answer = cluster.ask(kind(users=users), DescribeUserScramCredentialsResponse)
    if answer.error_code:
        raise NotDone(f"the users: {said(answer.error_code)}")
    found = []
    for result in answer.results:
        if result.error_code == ErrorCode.RESOURCE_NOT_FOUND:
            continue
        if result.error_code:
            raise NotDone(f"user '{result.user}': {said(result.error_code)}")
        found += [
            Credential(result.user, NAMES.get(one.mechanism, str(one.mechanism)), one.iterations)
            for one in result.credential_infos
        ]
    return found


def _password(path: str | None, user: str) -> str:
    """From a file, the terminal, or standard input; never of the command line."""
    if path is None and sys.stdin.isatty():
        password = getpass.getpass(f"Password of {user}: ")
        if password != getpass.getpass("Once more: "):
            raise NotDone("the two passwords differ")
    elif path is None:
        password = _first_line(sys.stdin)
    else:
        try:
            with Path(path).open(encoding="utf-8") as file:
                password = _first_line(file)
        except UnicodeDecodeError:
            raise NotDone(f"{path} is not UTF-8") from None
        except OSError as error:
            raise NotDone(f"{path} can't be read: {error.strerror or error}") from None
    if not password:
        raise NotDone("the password is empty")
    return password


def _first_line(stream: TextIO) -> str:
    line = stream.readline(PASSWORD_MAX + 2).removesuffix("\n").removesuffix("\r")
    if len(line) > PASSWORD_MAX:
        raise NotDone(f"the password has more than {PASSWORD_MAX} characters")
    return line
