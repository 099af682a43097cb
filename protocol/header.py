"""Request and response headers, and which version of each an API uses.

    request v1    api_key int16, api_version int16, correlation_id int32, client_id string
    request v2    v1 + tag section                      flexible versions
    response v0   correlation_id int32
    response v1   v0 + tag section                      flexible versions, but not ApiVersions

`client_id` keeps its two-byte length in v2. ApiVersions answers with the oldest response header in
every version, because a client that asks for versions cannot know yet which headers we speak
(KIP-511). Request v0 (ControlledShutdown v0) is never served.
"""

from __future__ import annotations

from struct import Struct

API_VERSIONS_KEY = 18

REQUEST_START = Struct(">Iih")
"""Key and version as one number (key << 16 | version), correlation id, length of the client id."""

UNKNOWN_VERSION_START = Struct(">hhi")
"""All that may be read of an ApiVersions request whose version is not known: key, version,
correlation id."""
