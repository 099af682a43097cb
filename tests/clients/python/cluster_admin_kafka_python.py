"""An administrator's requests to a cluster: `... BOOTSTRAP TOPIC NODE USER`, in kafka-python 3.

Prints a line `name=value` for each; an error is its code. There are no calls for quotas.
"""

from __future__ import annotations

import sys
from typing import Any

from kafka import TopicPartition
from kafka.admin import KafkaAdminClient, UserScramCredentialDeletion, UserScramCredentialUpsertion

SAFE_DOWNGRADE = 2


def main(bootstrap: str, topic: str, node: str, user: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    log_dirs(admin, topic)
    partitions(admin, TopicPartition(topic, 0), int(node))
    passwords(admin, user)
    features(admin)
    admin.close()


def log_dirs(admin: Any, topic: str) -> None:
    (broker,) = admin.describe_log_dirs([topic])
    (directory,) = broker["log_dirs"]
    (found,) = directory["topics"]
    (partition,) = (one for one in found["partitions"] if one["partition_index"] == 0)
    lag, future = partition["offset_lag"], str(partition["is_future_key"]).lower()
    say("size", f"{partition['partition_size']} {lag} {future}")
    say("room", str(directory["total_bytes"] > directory["usable_bytes"]).lower())


def partitions(admin: Any, partition: TopicPartition, node: int) -> None:
    elected = admin.elect_leaders(0, {partition.topic: [partition.partition]}, raise_errors=False)
    say("elect", elected.replica_election_results[0].partition_result[0].error_code)
    for name, replicas in (("stay", [node]), ("move", [node + 1]), ("cancel", None)):
        fault = admin.alter_partition_reassignments({partition: replicas})[partition]
        say(name, fault.errno if fault else 0)
    say("moving", len(admin.list_partition_reassignments()))


def passwords(admin: Any, user: str) -> None:
    def put(iterations: int) -> str | None:
        wanted = UserScramCredentialUpsertion(
            user, "SCRAM-SHA-512", password=b"pencil", iterations=iterations
        )
        fault: str | None = admin.alter_user_scram_credentials([wanted])[user]
        return fault

    say("password-set", 0 if put(8192) is None else "refused")
    (info,) = admin.describe_user_scram_credentials([user])[user]["credential_infos"]
    say("password", f"{info['mechanism'].value} {info['iterations']}")
    removed = admin.alter_user_scram_credentials(
        [UserScramCredentialDeletion(user, "SCRAM-SHA-512")]
    )
    say("password-removed", 0 if removed[user] is None else "refused")


def features(admin: Any) -> None:
    found = admin.describe_features()["metadata.version"]
    say("level", found["finalized"][1])
    say("known", found["supported"][0])
    say("epoch", str(found["finalized_epoch"] > 0).lower())
    lowered = admin.update_features({"metadata.version": (SAFE_DOWNGRADE, 20)}, validate_only=True)
    say("lower", 0 if lowered["metadata.version"] == "OK" else lowered)


def say(name: str, value: object) -> None:
    print(f"{name}={value}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
