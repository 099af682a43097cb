"""ApiVersions (18): what this broker speaks. Every modern client asks this first.

The response header is the oldest in every version, as a client that asks cannot know
better (KIP-511).

0  the list of keys with their ranges
1  throttle time
2  a throttled client waits by itself
3  flexible; the client's name and version; features
4  features whose lowest level is 0 may be listed; older Java clients fail on them
5  the client says which cluster and node it means to talk to
"""

from __future__ import annotations

from protocol.schema import Message, Struct, array, boolean, int16, int32, int64, string


class ApiVersionsRequest(Message, key=18, versions="0-5", flexible="3+"):
    client_software_name: str = string("3+", default="")
    client_software_version: str = string("3+", default="")
    cluster_id: str | None = string("5+", nullable="5+", default=None)
    node_id: int = int32("5+", default=-1)


class ApiVersionsResponse(Message, key=18, versions="0-5", flexible="3+"):
    class ApiVersion(Struct):
        api_key: int = int16()
        min_version: int = int16()
        max_version: int = int16()

    class SupportedFeature(Struct):
        name: str = string()
        min_version: int = int16()
        max_version: int = int16()

    class FinalizedFeature(Struct):
        name: str = string()
        max_version_level: int = int16()
        min_version_level: int = int16()

    error_code: int = int16()
    api_keys: list[ApiVersion] = array(ApiVersion)
    # Last but for the tags; in nearly every other response it comes first.
    throttle_time_ms: int = int32("1+", default=0)
    supported_features: list[SupportedFeature] = array(SupportedFeature, "3+", tag=0, default=())
    # -1 is unknown.
    finalized_features_epoch: int = int64("3+", tag=1, default=-1)
    finalized_features: list[FinalizedFeature] = array(FinalizedFeature, "3+", tag=2, default=())
    zk_migration_ready: bool = boolean("3+", tag=3, default=False)


def refused(request: ApiVersionsRequest, code: int) -> ApiVersionsResponse:
    """An answer of an error and nothing else."""
    return ApiVersionsResponse(error_code=code, api_keys=[])
