"""The table of handlers for the listeners of the controller; broker.dispatch has that for clients.

A module of its own, because most brokers have no such listener and every import delays the start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.handlers.alter_client_quotas import alter_client_quotas
from broker.handlers.alter_configs import alter_configs
from broker.handlers.alter_partition_reassignments import alter_partition_reassignments
from broker.handlers.alter_user_scram_credentials import alter_user_scram_credentials
from broker.handlers.api_versions import api_versions
from broker.handlers.describe_cluster import describe_controllers
from broker.handlers.describe_configs import describe_configs
from broker.handlers.describe_quorum import describe_quorum
from broker.handlers.describe_user_scram_credentials import describe_user_scram_credentials
from broker.handlers.elect_leaders import elect_leaders
from broker.handlers.fetch_metadata import fetch_metadata
from broker.handlers.fetch_snapshot import fetch_snapshot
from broker.handlers.incremental_alter_configs import incremental_alter_configs
from broker.handlers.list_partition_reassignments import list_partition_reassignments
from broker.handlers.update_features import update_features

if TYPE_CHECKING:
    from broker.dispatch import Handler

CONTROLLER_HANDLERS: dict[int, Handler] = {
    1: fetch_metadata,
    18: api_versions,
    32: describe_configs,
    33: alter_configs,
    43: elect_leaders,
    44: incremental_alter_configs,
    45: alter_partition_reassignments,
    46: list_partition_reassignments,
    49: alter_client_quotas,
    50: describe_user_scram_credentials,
    51: alter_user_scram_credentials,
    55: describe_quorum,
    57: update_features,
    59: fetch_snapshot,
    60: describe_controllers,
}
"""For those who follow the metadata log, and for what Kafka's tools ask of a controller
(`--bootstrap-controller`, KIP-919). ApiVersions on these listeners says just this."""
