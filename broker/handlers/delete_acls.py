"""DeleteAcls: the access rules that match a filter go, each filter with a result of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.handlers.create_acls import NO_AUTHORIZER
from broker.handlers.metadata_changes import changed, make_change
from broker.security.rules import RuleFilter, check_filter, rule_of
from protocol.errors import ErrorCode, KafkaError
from protocol.logdata.metadata import RemoveAccessControlEntryRecord
from protocol.messages.delete_acls import DeleteAclsRequest, DeleteAclsResponse, refused

if TYPE_CHECKING:
    from broker.handlers.context import Context
    from broker.metadata.changes import ChangeWait
    from protocol.connection import Request
    from storage.steps import Steps

Result = DeleteAclsResponse.FilterResult


def delete_acls(request: Request, ctx: Context) -> DeleteAclsResponse | ChangeWait:
    message: DeleteAclsRequest = request.message
    if ctx.authorizer is None:
        answer = refused(message, ErrorCode.SECURITY_DISABLED)
        for result in answer.filter_results:
            result.error_message = NO_AUTHORIZER
        return answer
    return changed(_answer(message, ctx), ctx)


def _answer(message: DeleteAclsRequest, ctx: Context) -> Steps[DeleteAclsResponse]:
    table = ctx.controller.image.acls
    results: list[Result] = []
    gone: dict[bytes, RemoveAccessControlEntryRecord] = {}
    for asked in message.filters:
        wanted = RuleFilter(
            asked.resource_type_filter,
            asked.resource_name_filter,
            asked.pattern_type_filter,
            asked.principal_filter,
            asked.host_filter,
            asked.operation,
            asked.permission_type,
        )
        result = Result(error_code=ErrorCode.NONE, matching_acls=[])
        results.append(result)
        try:
            check_filter(wanted)
        except KafkaError as error:
            result.error_code, result.error_message = error.code, str(error)
            continue
        for record in wanted.found(table):
            gone[record.id] = RemoveAccessControlEntryRecord(id=record.id)
            rule = rule_of(record)._asdict()
            result.matching_acls.append(Result.MatchingAcl(error_code=ErrorCode.NONE, **rule))
    try:
        yield from make_change("removing access rules", list(gone.values()), ctx)
    except KafkaError as error:
        for result in results:
            if not result.error_code:
                result.matching_acls = []
                result.error_code, result.error_message = error.code, str(error)
    return DeleteAclsResponse(filter_results=results)
