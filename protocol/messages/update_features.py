"""UpdateFeatures (57): the levels of features are raised or lowered.

0  lowering is allowed or not
1  three kinds of change; asking without doing
2  the answer has no result for each feature any more
"""

from __future__ import annotations

from protocol.schema import Message, Struct, array, boolean, int8, int16, int32, string


class UpdateFeaturesRequest(Message, key=57, versions="0-2", flexible="0+"):
    class FeatureUpdate(Struct):
        feature: str = string()
        max_version_level: int = int16()
        allow_downgrade: bool = boolean("0", default=False)
        # 1 raise, 2 lower without loss, 3 lower even with loss.
        upgrade_type: int = int8("1+", default=1)

    timeout_ms: int = int32(default=60000)
    feature_updates: list[FeatureUpdate] = array(FeatureUpdate)
    validate_only: bool = boolean("1+", default=False)


class UpdateFeaturesResponse(Message, key=57, versions="0-2", flexible="0+"):
    class Feature(Struct):
        feature: str = string()
        error_code: int = int16()
        error_message: str | None = string(nullable="", default=None)

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    error_message: str | None = string(nullable="", default=None)
    results: list[Feature] = array(Feature, "0-1", default=())


def refused(request: UpdateFeaturesRequest, code: int) -> UpdateFeaturesResponse:
    """The answer in which the request and every feature named meet the same error."""
    return UpdateFeaturesResponse(
        error_code=code,
        results=[
            UpdateFeaturesResponse.Feature(feature=asked.feature, error_code=code)
            for asked in request.feature_updates
        ],
    )
