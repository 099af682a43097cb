"""DescribeAcls: the access rules that match a filter, by the resource that they name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.security.rules import RuleFilter, check_filter
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse, refused

if TYPE_CHECKING:
    from broker.handlers.context import Context
    from protocol.connection import Request

NO_AUTHORIZER = "No Authorizer is configured on the broker"

Resource = DescribeAclsResponse.Resource


def describe_acls(request: Request, ctx: Context) -> DescribeAclsResponse:
    message: DescribeAclsRequest = request.message
    if ctx.authorizer is None:
        answer = refused(message, ErrorCode.SECURITY_DISABLED)
        answer.error_message = NO_AUTHORIZER
        return answer
    wanted = RuleFilter(
        message.resource_type_filter,
        message.resource_name_filter,
        message.pattern_type_filter,
        message.principal_filter,
        message.host_filter,
        message.operation,
        message.permission_type,
    )
    try:
        check_filter(wanted)
    except KafkaError as error:
        answer = refused(message, error.code)
        answer.error_message = str(error)
        return answer
    resources: dict[tuple[int, int, str], Resource] = {}
    for record in wanted.found(ctx.controller.image.acls):
        place = record.resource_type, record.pattern_type, record.resource_name
        resource = resources.get(place)
        if resource is None:
            resource = resources[place] = Resource(
                resource_type=record.resource_type,
                resource_name=record.resource_name,
                pattern_type=record.pattern_type,
                acls=[],
            )
        resource.acls.append(
            Resource.Acl(
                principal=record.principal,
                host=record.host,
                operation=record.operation,
                permission_type=record.permission_type,
            )
        )
    return DescribeAclsResponse(
        error_code=ErrorCode.NONE,
        resources=[resources[place] for place in sorted(resources)],
    )
