"""DescribeAcls: there is no authorizer, so there are no access rules to tell, as Kafka says without
one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.errors import ErrorCode
from protocol.messages.describe_acls import DescribeAclsResponse

if TYPE_CHECKING:
    from broker.handlers.context import Context
    from protocol.connection import Request

NO_AUTHORIZER = "No Authorizer is configured on the broker"


def describe_acls(request: Request, ctx: Context) -> DescribeAclsResponse:
    return DescribeAclsResponse(
        error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER, resources=[]
    )
