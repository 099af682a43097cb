"""ApiVersions: what is served here. Every modern client asks this first.

A version that is not known here is answered in version 0 with UNSUPPORTED_VERSION and one entry,
our own range for this very API (KIP-511); such a request arrives without a message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.errors import ErrorCode
from protocol.header import API_VERSIONS_KEY
from protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

if TYPE_CHECKING:
    from broker.context import Context
    from protocol.connection import Request

SOFTWARE_NAME_SINCE = 3
_ALPHANUMERIC = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789")
_ALLOWED = _ALPHANUMERIC | frozenset("-.")


def api_versions(request: Request, ctx: Context) -> ApiVersionsResponse:
    if request.message is None:
        return _only_this(ctx, ErrorCode.UNSUPPORTED_VERSION)
    message: ApiVersionsRequest = request.message
    ctx.client_id = request.client_id
    if request.version >= SOFTWARE_NAME_SINCE and not (
        _is_software_name(message.client_software_name)
        and _is_software_name(message.client_software_version)
    ):
        return _only_this(ctx, ErrorCode.INVALID_REQUEST)
    fault = _wrong_destination(message, ctx)
    if fault is not None:
        return _only_this(ctx, fault)
    return ApiVersionsResponse(error_code=ErrorCode.NONE, api_keys=_all(ctx))


def _wrong_destination(message: ApiVersionsRequest, ctx: Context) -> ErrorCode | None:
    """Version 5 says which cluster and node it means to talk to (KIP-1242)."""
    if message.cluster_id is None and message.node_id == -1:
        return None
    if message.cluster_id is None or message.node_id == -1:
        return ErrorCode.INVALID_REQUEST
    if message.cluster_id != ctx.broker.cluster_id or message.node_id != ctx.broker.node_id:
        return ErrorCode.REBOOTSTRAP_REQUIRED
    return None


def _all(ctx: Context) -> list[ApiVersionsResponse.ApiVersion]:
    return [
        ApiVersionsResponse.ApiVersion(
            api_key=key, min_version=served.min_version, max_version=served.max_version
        )
        for key, served in sorted(ctx.broker.routes.served.items())
    ]


def _only_this(ctx: Context, code: ErrorCode) -> ApiVersionsResponse:
    return ApiVersionsResponse(
        error_code=code,
        api_keys=[entry for entry in _all(ctx) if entry.api_key == API_VERSIONS_KEY],
    )


def _is_software_name(text: str) -> bool:
    """Letters and digits, with '-' and '.' inside: the pattern of KIP-511."""
    return (
        bool(text)
        and _ALLOWED.issuperset(text)
        and text[0] in _ALPHANUMERIC
        and text[-1] in _ALPHANUMERIC
    )
