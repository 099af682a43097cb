"""UpdateFeatures: raise or lower the cluster's features: metadata.version, group.version and
transaction.version.

From then on records are written as that level of metadata.version has them. It is lowered only
where no record would be written differently: Kafka 3.9 and 4.3 refuse to lose records too, also
when told to. The others go with it unless they are named (see broker.metadata.features). Of a
feature that is named twice the last one counts, as with Kafka.

All of them are changed or none, in every version: what is refused is said at the top, as Kafka 4
does (3.9 answered for each feature by itself).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.handlers.metadata_changes import changed, make_change
from broker.metadata import features
from protocol.errors import ErrorCode, KafkaError
from protocol.logdata.metadata import FeatureLevelRecord, release_of
from protocol.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse
from storage.metadata.image import METADATA_VERSION_FEATURE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from broker.handlers.context import Context
    from broker.metadata.changes import ChangeWait
    from protocol.connection import Request
    from storage.steps import Steps

UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3
UPGRADE_TYPES_SINCE = 1

Asked = UpdateFeaturesRequest.FeatureUpdate
FeatureResult = UpdateFeaturesResponse.Feature


def update_features(request: Request, ctx: Context) -> ChangeWait:
    return changed(_answer(request, ctx), ctx)


def _answer(request: Request, ctx: Context) -> Steps[UpdateFeaturesResponse]:
    message: UpdateFeaturesRequest = request.message
    updates = {asked.feature: asked for asked in message.feature_updates}
    before = ctx.controller.feature_levels
    try:
        after = _updated(before, updates, request.version)
        if not message.validate_only:
            records = [
                FeatureLevelRecord(name=name, feature_level=level)
                for name, level in after.items()
                if level != before.get(name, 0)
            ]
            yield from make_change("changing features", records, ctx)
    except KafkaError as error:
        reason = f"no feature was changed: {error}"
        return UpdateFeaturesResponse(error_code=error.code, error_message=reason)
    results = [FeatureResult(feature=name, error_code=ErrorCode.NONE) for name in updates]
    return UpdateFeaturesResponse(error_code=ErrorCode.NONE, results=results)


def _updated(
    levels: Mapping[str, int], updates: Mapping[str, Asked], version: int
) -> dict[str, int]:
    """The levels that hold after the updates. Raises KafkaError if one of these is refused."""
    after = dict(levels)
    # What others can be depends on metadata.version.
    for name in sorted(updates, key=METADATA_VERSION_FEATURE.__ne__):
        level = updates[name].max_version_level
        _check(name, level, _upgrade_type(updates[name], version), after)
        after[name] = level
    if features.GROUP_VERSION_FEATURE not in updates:
        features.let_group_version_follow(levels, after)
    if features.TRANSACTION_VERSION_FEATURE not in updates:
        features.let_transaction_version_follow(levels, after)
    return after


def _upgrade_type(asked: Asked, version: int) -> int:
    if version < UPGRADE_TYPES_SINCE:
        return SAFE_DOWNGRADE if asked.allow_downgrade else UPGRADE
    return asked.upgrade_type


def _check(name: str, level: int, upgrade_type: int, levels: Mapping[str, int]) -> None:
    """Whether a feature may get a level where these hold. Raises KafkaError if not."""
    if upgrade_type not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        raise _refused(f"upgrade type {upgrade_type}, wanted 1 to 3")
    supported = features.supported().get(name)
    if supported is None:
        raise _refused(f"there is no feature '{name}'")
    if not supported.lowest <= level <= supported.highest:
        raise _refused(f"{name} {level}, wanted {supported.lowest} to {supported.highest}")
    if name == features.GROUP_VERSION_FEATURE and level:
        _check_group_version(levels[METADATA_VERSION_FEATURE])
    if name == features.TRANSACTION_VERSION_FEATURE and level:
        _check_group_version(levels[METADATA_VERSION_FEATURE], f"{name} {level}")
    now = levels.get(name, 0)
    if level == now:
        return
    if level < now and upgrade_type == UPGRADE:
        raise _refused(f"{name} is {now}; to lower it to {level} has to be asked for as such")
    if level > now and upgrade_type != UPGRADE:
        raise _refused(f"{name} is {now}; {level} is higher, and a downgrade was asked for")
    if name == features.KRAFT_VERSION_FEATURE:
        raise _refused(f"{name} is {now} and can't be changed: this node is its own quorum")
    if name == METADATA_VERSION_FEATURE:
        _check_metadata_version(now, level)


def _check_group_version(metadata_version: int, what: str = "group.version 1") -> None:
    since = features.GROUP_VERSION_SINCE
    if metadata_version < since:
        raise _refused(
            f"{what} needs metadata.version {since} ({release_of(since)}), it is "
            f"{metadata_version} ({release_of(metadata_version)}), and a Kafka of that level does "
            "not start where the log names it"
        )


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
