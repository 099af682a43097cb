"""ApiVersions: what is served here. Every modern client asks this first.

The listener of the controller serves other APIs than those of clients.

A version that is not known here is answered in version 0 with UNSUPPORTED_VERSION and one entry,
our own range for this very API (KIP-511); such a request arrives without a message.

Version 3 says which features there are and which levels of them hold (KIP-584), as of an offset of
the metadata log. From then on a client tells its name and release (KIP-511): what some releases are
known to misread they are not offered (`protocol.quirks`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.metadata import features
from protocol.eras import FETCH
from protocol.errors import ErrorCode
from protocol.header import API_VERSIONS_KEY
from protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from protocol.quirks import LAST_FETCH_READ_RIGHT, OldEntries, old_entries_read_by

if TYPE_CHECKING:
    from broker.handlers.context import Context
    from protocol.connection import Request

SOFTWARE_NAME_SINCE = FEATURES_SINCE = 3
LEVEL_0_SINCE = 4
"""Older clients fail on a feature whose lowest level is 0 (KAFKA-17011)."""
_ALPHANUMERIC = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789")
_ALLOWED = _ALPHANUMERIC | frozenset("-.")


def api_versions(request: Request, ctx: Context) -> ApiVersionsResponse:
    if request.message is None:
        return _only_this(ctx, ErrorCode.UNSUPPORTED_VERSION)
    message: ApiVersionsRequest = request.message
    ctx.client_id = request.client_id
    highest: dict[int, int] = {}
    if request.version >= SOFTWARE_NAME_SINCE:
        name, release = message.client_software_name, message.client_software_version
        if not (_is_software_name(name) and _is_software_name(release)):
            return _only_this(ctx, ErrorCode.INVALID_REQUEST)
        ctx.software_name, ctx.software_version = name, release
        read = old_entries_read_by(name, release)
        ctx.misreads_old_entries = read is not OldEntries.RIGHT
        if read is OldEntries.WRONG:
            highest[FETCH] = LAST_FETCH_READ_RIGHT
    fault = _wrong_destination(message, ctx)
    if fault is not None:
        return _only_this(ctx, fault)
    response = ApiVersionsResponse(error_code=ErrorCode.NONE, api_keys=_all(ctx, highest))
    if request.version >= FEATURES_SINCE:
        _add_features(response, request.version, ctx)
    return response


def _wrong_destination(message: ApiVersionsRequest, ctx: Context) -> ErrorCode | None:
    """Version 5 says which cluster and node it means to talk to (KIP-1242)."""
    if message.cluster_id is None and message.node_id == -1:
        return None
    if message.cluster_id is None or message.node_id == -1:
        return ErrorCode.INVALID_REQUEST
    if message.cluster_id != ctx.cluster_id or message.node_id != ctx.node_id:
        return ErrorCode.REBOOTSTRAP_REQUIRED
    return None


def _add_features(response: ApiVersionsResponse, version: int, ctx: Context) -> None:
    controller = ctx.controller
    advertised = features.advertised(controller.image.metadata_version)
    response.supported_features = [
        ApiVersionsResponse.SupportedFeature(
            name=name, min_version=levels.lowest, max_version=levels.highest
        )
        for name, levels in sorted(advertised.items())
        if levels.lowest > 0 or version >= LEVEL_0_SINCE
    ]
    response.finalized_features = [
        ApiVersionsResponse.FinalizedFeature(
            name=name, max_version_level=level, min_version_level=level
        )
        for name, level in sorted(controller.finalized_features.items())
    ]
    response.finalized_features_epoch = controller.partition.high_watermark - 1


def _all(ctx: Context, highest: dict[int, int]) -> list[ApiVersionsResponse.ApiVersion]:
    """The APIs served, up to the versions in `highest` where it names any."""
    return [
        ApiVersionsResponse.ApiVersion(
            api_key=key,
            min_version=served.min_version,
            max_version=min(served.max_version, highest.get(key, served.max_version)),
        )
        for key, served in sorted(ctx.routes.served.items())
    ]


def _only_this(ctx: Context, code: ErrorCode) -> ApiVersionsResponse:
    return ApiVersionsResponse(
        error_code=code,
        api_keys=[entry for entry in _all(ctx, {}) if entry.api_key == API_VERSIONS_KEY],
    )


def _is_software_name(text: str) -> bool:
    """Letters and digits, with '-' and '.' inside: the pattern of KIP-511."""
    return (
        bool(text)
        and _ALLOWED.issuperset(text)
        and text[0] in _ALPHANUMERIC
        and text[-1] in _ALPHANUMERIC
    )
