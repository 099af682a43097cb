"""UpdateFeatures: raise or lower the cluster's features; metadata.version is the one that can be.

From then on records are written as that level has them. It is lowered only where no record would
be written differently: Kafka 3.9 and 4.3 refuse to lose records too, also when told to. Of a
feature that is named twice the last one counts, as with them.

Versions 0 and 1 answer for each feature by itself, version 2 changes all of them or none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker import features
from broker.metadata_changes import make_change
from protocol.errors import ErrorCode, KafkaError
from protocol.logdata.metadata import FeatureLevelRecord, release_of
from protocol.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse
from storage.metadata.image import METADATA_VERSION_FEATURE

if TYPE_CHECKING:
    from broker.context import Context
    from broker.controller import Controller
    from protocol.connection import Request

UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3
UPGRADE_TYPES_SINCE = 1
ALL_OR_NONE_SINCE = 2

Asked = UpdateFeaturesRequest.FeatureUpdate
Entry = UpdateFeaturesResponse.Feature


def update_features(request: Request, ctx: Context) -> UpdateFeaturesResponse:
    message: UpdateFeaturesRequest = request.message
    controller = ctx.broker.controller
    records, results, faults = [], [], []
    for name, asked in {asked.feature: asked for asked in message.feature_updates}.items():
        entry = Entry(feature=name, error_code=ErrorCode.NONE)
        results.append(entry)
        try:
            upgrade_type = _upgrade_type(asked, request.version)
            if _changes(name, asked.max_version_level, upgrade_type, controller):
                records.append(FeatureLevelRecord(name=name, feature_level=asked.max_version_level))
        except KafkaError as error:
            entry.error_code, entry.error_message = error.code, str(error)
            faults.append(error)
    try:
        if faults and request.version >= ALL_OR_NONE_SINCE:
            raise faults[0]
        if not message.validate_only:
            make_change("changing features", records, ctx)
    except KafkaError as error:
        return UpdateFeaturesResponse(error_code=error.code, error_message=str(error))
    return UpdateFeaturesResponse(error_code=ErrorCode.NONE, results=results)


def _upgrade_type(asked: Asked, version: int) -> int:
    if version < UPGRADE_TYPES_SINCE:
        return SAFE_DOWNGRADE if asked.allow_downgrade else UPGRADE
    return asked.upgrade_type


def _changes(name: str, level: int, upgrade_type: int, controller: Controller) -> bool:
    """Whether it is to be written: False if the feature is there already. Raises KafkaError."""
    if upgrade_type not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        raise _refused(f"upgrade type {upgrade_type}, wanted 1 to 3")
    levels = features.supported().get(name)
    if levels is None:
        raise _refused(f"there is no feature '{name}'")
    if not levels.lowest <= level <= levels.highest:
        raise _refused(f"{name} {level}, wanted {levels.lowest} to {levels.highest}")
    now = features.finalized(controller).get(name, 0)
    if name == METADATA_VERSION_FEATURE:
        now = controller.image.metadata_version
    if level == now:
        return False
    if level < now and upgrade_type == UPGRADE:
        raise _refused(f"{name} is {now}; to lower it to {level} has to be asked for as such")
    if level > now and upgrade_type != UPGRADE:
        raise _refused(f"{name} is {now}; {level} is higher, and a downgrade was asked for")
    if name == features.KRAFT_VERSION_FEATURE:
        raise _refused(f"{name} is {now} and can't be changed: this node is its own quorum")
    _check_metadata_version(now, level)
    return True


def _check_metadata_version(now: int, level: int) -> None:
    if level < features.LOWEST_SETTABLE:
        raise _refused(
            f"metadata.version {level} can't be set, the lowest is {features.LOWEST_SETTABLE} "
            f"({release_of(features.LOWEST_SETTABLE)})"
        )
    if level < now and features.records_differ(level, now):
        raise _refused(
            f"metadata.version {level} ({release_of(level)}) writes other records than {now} "
            f"({release_of(now)}) does; to lower it could lose metadata"
        )


def _refused(text: str) -> KafkaError:
    return KafkaError(text, code=ErrorCode.INVALID_UPDATE_VERSION)
