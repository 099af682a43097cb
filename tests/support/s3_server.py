"""A server of S3 in a process of its own: versitygw, which keeps its objects as files in a folder.

It checks signatures, takes conditional puts, and shows an object once all its parts are there. Go
builds it at first use, which takes minutes; the lock file beside it pins what of.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from tests.support import fetched
from tests.support.server_process import RunningProcess, ServerProcess, free_port

MODULE = Path(__file__).parent / "s3_server"
PACKAGE = "github.com/versity/versitygw/cmd/versitygw"
ACCESS_KEY = "triglot"
SECRET_KEY = "not-to-be-printed"


class S3Server(ServerProcess):
    """The server. Raises `NotAvailable` where it cannot be built."""

    READY_LINE = re.compile("Admin/S3 service listening on")

    @property
    def endpoint(self) -> str:
        return f"http://{self.host}:{self.port}"

    def _launch(self) -> RunningProcess:
        self.data.mkdir(exist_ok=True)
        self.port = self.port or free_port()
        program = fetched.go_command(MODULE, PACKAGE)
        return RunningProcess(
            [str(program), "--port", f"{self.host}:{self.port}", "posix", str(self.data)],
            cwd=self.data,
            environ={**os.environ, "ROOT_ACCESS_KEY": ACCESS_KEY, "ROOT_SECRET_KEY": SECRET_KEY},
            ready_line=self.READY_LINE,
        )


def environ(endpoint: str) -> dict[str, str]:
    """What lets AWS's libraries, Arrow and the packages for tables find the server."""
    return {
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ENDPOINT_URL_S3": endpoint,
        "AWS_ALLOW_HTTP": "true",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
