"""ApiVersions: what is served here. Every modern client asks this first.

The listener of the controller serves other APIs than those of clients.

A version that is not known here is answered in version 0 with UNSUPPORTED_VERSION and one entry,
our own range for this very API (KIP-511); such a request arrives without a message.

Version 3 says which features there are and which levels of them hold (KIP-584), as of an offset of
the metadata log. From then on a client tells its name and release (KIP-511): what some releases are
known to misread they are not offered (`protocol.quirks`), unless the broker is to answer as another
release (`protocol.rehearsal`), which would offer it.
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
    from broker.metadata.controller_view import ControllerView
    from protocol.connection import Request, Routes
    from protocol.releases import Release

SOFTWARE_NAME_SINCE = FEATURES_SINCE = 3
LEVEL_0_SINCE = 4
"""Older clients fail on a feature whose lowest level is 0 (KAFKA-17011)."""
_ALPHANUMERIC = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789")
_ALLOWED = _ALPHANUMERIC | frozenset("-.")


def api_versions(request: Request, ctx: Context) -> ApiVersionsResponse:
    routes = ctx.routes.of(request.client_id)
    release = routes.release
    if request.message is None:
        if release is not None and not release.tells_its_range:
            return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[])
        return _only_this(routes, ErrorCode.UNSUPPORTED_VERSION)
    message: ApiVersionsRequest = request.message
    ctx.client_id = request.client_id
    highest: dict[int, int] = {}
    if request.version >= SOFTWARE_NAME_SINCE:
        name, version = message.client_software_name, message.client_software_version
        if not (_is_software_name(name) and _is_software_name(version)):
            return _only_this(routes, ErrorCode.INVALID_REQUEST)
        ctx.software_name, ctx.software_version = name, version
        # Another release would not allow for it.
        read = old_entries_read_by(name, version) if release is None else OldEntries.RIGHT
        ctx.misreads_old_entries = read is not OldEntries.RIGHT
        if read is OldEntries.WRONG:
            highest[FETCH] = LAST_FETCH_READ_RIGHT
    fault = _wrong_destination(message, ctx)
    if fault is not None:
        return _only_this(routes, fault)
    response = ApiVersionsResponse(error_code=ErrorCode.NONE, api_keys=_all(routes, highest))
    if request.version >= FEATURES_SINCE:
        _add_features(response, request.version, ctx.controller, release)
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


def _add_features(
    response: ApiVersionsResponse, version: int, controller: ControllerView, release: Release | None
) -> None:
    advertised = features.advertised(controller.image.metadata_version)
    finalized = controller.finalized_features
    epoch = controller.committed_offset - 1
    if release is not None:
        advertised, finalized = features.in_release(release, advertised, finalized)
        if not release.has_features:
            epoch = 0 if release.has_an_epoch_of_features else -1
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
        for name, level in sorted(finalized.items())
    ]
    response.finalized_features_epoch = epoch


def _all(routes: Routes, highest: dict[int, int]) -> list[ApiVersionsResponse.ApiVersion]:
    """The APIs served, up to the versions in `highest` where it names any."""
    return [
        ApiVersionsResponse.ApiVersion(
            api_key=key, min_version=low, max_version=min(high, highest.get(key, high))
        )
        for key, low, high in routes.advertised()
    ]


def _only_this(routes: Routes, code: ErrorCode) -> ApiVersionsResponse:
    return ApiVersionsResponse(
        error_code=code,
        api_keys=[entry for entry in _all(routes, {}) if entry.api_key == API_VERSIONS_KEY],
    )


def _is_software_name(text: str) -> bool:
    """Letters and digits, with '-' and '.' inside: the pattern of KIP-511."""
    return (
        bool(text)
        and _ALLOWED.issuperset(text)
        and text[0] in _ALPHANUMERIC
        and text[-1] in _ALPHANUMERIC
    )
