"""An administrator's requests to a cluster: `... BOOTSTRAP TOPIC NODE USER`, in confluent-kafka.

Prints a line `name=value` for each; an error is its code. It has calls for elections and passwords.
"""

from __future__ import annotations

import sys
from typing import Any

from confluent_kafka import ElectionType, KafkaException, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

MECHANISM = ScramMechanism.SCRAM_SHA_512


def main(bootstrap: str, topic: str, _: str, user: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    elected = admin.elect_leaders(ElectionType.PREFERRED, [TopicPartition(topic, 0)]).result()
    say("elect", next(iter(elected.values())).code())
    say("elect-all", len(admin.elect_leaders(ElectionType.PREFERRED, None).result()))
    passwords(admin, user)


def passwords(admin: Any, user: str) -> None:
    def put(iterations: int) -> int:
        info = ScramCredentialInfo(MECHANISM, iterations)
        wanted = UserScramCredentialUpsertion(user, info, b"pencil", b"salt")
        return code(admin.alter_user_scram_credentials([wanted])[user])

    say("password-set", put(8192))
    say("password-wrong", put(100))
    found = admin.describe_user_scram_credentials([user])[user].result()
    (info,) = found.scram_credential_infos
    say("password", f"{info.mechanism.value} {info.iterations}")
    for name in ("password-removed", "password-missing"):
        deletion = UserScramCredentialDeletion(user, MECHANISM)
        say(name, code(admin.alter_user_scram_credentials([deletion])[user]))
    say("user-missing", code(admin.describe_user_scram_credentials([user])[user]))


def code(future: Any) -> int:
    try:
        future.result()
    except KafkaException as error:
        return int(error.args[0].code())
    return 0


def say(name: str, value: object) -> None:
    print(f"{name}={value}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
