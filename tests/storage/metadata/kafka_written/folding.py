"""The state after the records of a metadata log, from the JSON of Apache Kafka's dump tool.

A second opinion for the tests of our own loading: it shares no code with it, the bytes were decoded
by Kafka, and `make.py` compares what it comes to with the answers of the Kafka that wrote them.
"""

from __future__ import annotations

import json
import re
from typing import Any

BATCH = re.compile(r"^baseOffset: (\d+) lastOffset: (\d+) .* partitionLeaderEpoch: (\d+)")
RECORD = re.compile(r"^\| offset: (\d+) .* payload: (\{.*\})$")
HEADER = re.compile(r"SnapshotHeader (\{.*\})$")
VOTERS = re.compile(r"KRaftVoters (\{.*\})$")

#: Which fields of a change replace those of the partition.
CHANGED = {
    "isr": "isr",
    "replicas": "replicas",
    "removingReplicas": "removing",
    "addingReplicas": "adding",
    "directories": "directories",
    "eligibleLeaderReplicas": "elr",
    "lastKnownElr": "last_known_elr",
}
NOT_A_CHANGE = -2
Json = dict[str, Any]


class Folded:
    """The state after all records that were given to `add`."""

    def __init__(self) -> None:
        self.next_offset = 0
        self.epoch = 0
        self.kinds: set[str] = set()
        self.topics: dict[str, Json] = {}
        self.configs: dict[tuple[int, str], dict[str, str]] = {}
        self.quotas: dict[tuple[tuple[str, str | None], ...], dict[str, float]] = {}
        self.users: dict[tuple[str, int], Json] = {}
        self.acls: dict[str, Json] = {}
        self.features: dict[str, int] = {}
        self.next_producer_id = 0
        self.brokers: dict[int, Json] = {}
        self.voters: list[Json] = []
        self._names: dict[str, str] = {}
        #: Records of a metadata transaction that has not ended.
        self._held: list[tuple[str, Json]] | None = None

    def add_log(self, dumped: str) -> None:
        """Every record of a log file that is not below the offsets seen already."""
        for line in dumped.splitlines():
            if batch := BATCH.match(line):
                last = int(batch[2])
                if last >= self.next_offset:
                    self.epoch = int(batch[3])
            elif record := RECORD.match(line):
                if int(record[1]) >= self.next_offset:
                    found = json.loads(record[2])
                    self._take(found["type"], found["data"])
                    self.kinds.add(f"{found['type']} {found['version']}")
            elif voters := VOTERS.search(line):
                self.voters = json.loads(voters[1])["voters"]
            if batch:
                end = last + 1
        self.next_offset = max(self.next_offset, end)

    def add_snapshot(self, dumped: str, end_offset: int, epoch: int) -> None:
        """Every record of a snapshot, whose offsets are its own."""
        assert HEADER.search(dumped.splitlines()[3]), dumped[:1000]
        self.add_log(dumped)
        self.next_offset, self.epoch = end_offset, epoch

    def end(self) -> None:
        """A transaction that is open at the end has not happened."""
        self._held = None

    def _take(self, kind: str, data: Json) -> None:
        if kind == "BEGIN_TRANSACTION_RECORD":
            self._held = []
        elif kind == "END_TRANSACTION_RECORD":
            held, self._held = self._held or [], None
            for one in held:
                self._apply(*one)
        elif kind == "ABORT_TRANSACTION_RECORD":
            self._held = None
        elif self._held is not None:
            self._held.append((kind, data))
        else:
            self._apply(kind, data)

    def _apply(self, kind: str, data: Json) -> None:
        apply = getattr(self, f"_{kind.lower().removesuffix('_record')}", None)
        assert apply is not None, f"{kind}: {data}"
        apply(data)

    def _no_op(self, data: Json) -> None:
        pass

    _zk_migration_state = _no_op
    _register_controller = _no_op

    def _feature_level(self, data: Json) -> None:
        self.features[data["name"]] = data["featureLevel"]
        if not data["featureLevel"]:
            del self.features[data["name"]]

    def _topic(self, data: Json) -> None:
        self.topics[data["name"]] = {"topic_id": data["topicId"], "partitions": []}
        self._names[data["topicId"]] = data["name"]

    def _remove_topic(self, data: Json) -> None:
        name = self._names.pop(data["topicId"])
        del self.topics[name]
        self.configs.pop((2, name), None)

    def _partition(self, data: Json) -> None:
        partitions = self.topics[self._names[data["topicId"]]]["partitions"]
        # A snapshot has them in any order.
        partitions += [None] * (data["partitionId"] + 1 - len(partitions))
        partitions[data["partitionId"]] = {
            "replicas": data["replicas"],
            "isr": data["isr"],
            "removing": data["removingReplicas"],
            "adding": data["addingReplicas"],
            "leader": data["leader"],
            "leader_epoch": data["leaderEpoch"],
            "partition_epoch": data["partitionEpoch"],
            "leader_recovery_state": data.get("leaderRecoveryState", 0),
            "directories": data.get("directories", []),
            "elr": data.get("eligibleLeaderReplicas") or [],
            "last_known_elr": data.get("lastKnownElr") or [],
        }

    def _partition_change(self, data: Json) -> None:
        name = self._names[data["topicId"]]
        partition = self.topics[name]["partitions"][data["partitionId"]]
        for field, ours in CHANGED.items():
            if data.get(field) is not None:
                partition[ours] = data[field]
        if data.get("leader", NOT_A_CHANGE) != NOT_A_CHANGE:
            partition["leader"] = data["leader"]
            partition["leader_epoch"] += 1
        if data.get("leaderRecoveryState", -1) != -1:
            partition["leader_recovery_state"] = data["leaderRecoveryState"]
        partition["partition_epoch"] += 1

    def _config(self, data: Json) -> None:
        key = data["resourceType"], data["resourceName"]
        configs = self.configs.setdefault(key, {})
        if data["value"] is None:
            configs.pop(data["name"], None)
        else:
            configs[data["name"]] = data["value"]
        if not configs:
            del self.configs[key]

    def _client_quota(self, data: Json) -> None:
        entity = tuple(sorted((e["entityType"], e["entityName"]) for e in data["entity"]))
        quotas = self.quotas.setdefault(entity, {})
        if data["remove"]:
            quotas.pop(data["key"], None)
        else:
            quotas[data["key"]] = data["value"]
        if not quotas:
            del self.quotas[entity]

    def _user_scram_credential(self, data: Json) -> None:
        self.users[data["name"], data["mechanism"]] = {
            "salt": data["salt"],
            "stored_key": data["storedKey"],
            "server_key": data["serverKey"],
            "iterations": data["iterations"],
        }

    def _remove_user_scram_credential(self, data: Json) -> None:
        del self.users[data["name"], data["mechanism"]]

    def _access_control_entry(self, data: Json) -> None:
        fields = dict(data)
        self.acls[fields.pop("id")] = fields

    def _remove_access_control_entry(self, data: Json) -> None:
        del self.acls[data["id"]]

    def _producer_ids(self, data: Json) -> None:
        self.next_producer_id = data["nextProducerId"]

    def _register_broker(self, data: Json) -> None:
        self.brokers[data["brokerId"]] = {
            "epoch": data["brokerEpoch"],
            "incarnation_id": data["incarnationId"],
            "fenced": data["fenced"],
            "in_controlled_shutdown": data.get("inControlledShutdown", False),
            "log_dirs": data.get("logDirs") or [],
        }

    def _broker_registration_change(self, data: Json) -> None:
        broker = self.brokers[data["brokerId"]]
        if data.get("fenced", 0):
            broker["fenced"] = data["fenced"] == 1
        if data.get("inControlledShutdown", 0):
            broker["in_controlled_shutdown"] = data["inControlledShutdown"] == 1
        if data.get("logDirs"):
            broker["log_dirs"] = data["logDirs"]

    def _unregister_broker(self, data: Json) -> None:
        del self.brokers[data["brokerId"]]

    def expected(self) -> Json:
        """As it is kept beside the files: keys are strings or lists, in a fixed order."""
        return {
            "end_offset": self.next_offset,
            "epoch": self.epoch,
            "record_kinds": sorted(self.kinds),
            "topics": self.topics,
            "configs": [[*key, value] for key, value in sorted(self.configs.items())],
            "quotas": sorted(
                ([[list(e) for e in entity], value] for entity, value in self.quotas.items()),
                key=json.dumps,
            ),
            "users": [[*key, value] for key, value in sorted(self.users.items())],
            "acls": self.acls,
            "features": self.features,
            "next_producer_id": self.next_producer_id,
            "brokers": self.brokers,
            "voters": self.voters,
        }
