"""CreateAcls: new access rules. One that there is already is made without a word, as in Kafka."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.handlers.metadata_changes import changed, make_change
from broker.security.rules import Rule, check_rule, rule_of
from protocol.errors import ErrorCode, KafkaError
from protocol.logdata.metadata import AccessControlEntryRecord
from protocol.messages.create_acls import CreateAclsRequest, CreateAclsResponse, refused

if TYPE_CHECKING:
    from broker.handlers.context import Context
    from broker.metadata.changes import ChangeWait
    from protocol.connection import Request
    from storage.steps import Steps

NO_AUTHORIZER = "No Authorizer is configured."

Result = CreateAclsResponse.Result


def create_acls(request: Request, ctx: Context) -> CreateAclsResponse | ChangeWait:
    message: CreateAclsRequest = request.message
    if ctx.authorizer is None:
        answer = refused(message, ErrorCode.SECURITY_DISABLED)
        for result in answer.results:
            result.error_message = NO_AUTHORIZER
        return answer
    return changed(_answer(message, ctx), ctx)


def _answer(message: CreateAclsRequest, ctx: Context) -> Steps[CreateAclsResponse]:
    table = ctx.controller.image.acls
    results: list[Result] = []
    made: dict[Rule, AccessControlEntryRecord] = {}
    for asked in message.creations:
        rule = Rule(
            asked.resource_type,
            asked.resource_name,
            asked.resource_pattern_type,
            asked.principal,
            asked.host,
            asked.operation,
            asked.permission_type,
        )
        result = Result(error_code=ErrorCode.NONE)
        results.append(result)
        try:
            check_rule(rule)
        except KafkaError as error:
            result.error_code, result.error_message = error.code, str(error)
            continue
        there = table.of(rule.resource_type, rule.pattern_type, rule.resource_name)
        if rule not in made and all(rule_of(record) != rule for record in there):
            made[rule] = AccessControlEntryRecord(id=ctx.new_uuid(), **rule._asdict())
    try:
        yield from make_change("adding access rules", list(made.values()), ctx)
    except KafkaError as error:
        for result in results:
            if not result.error_code:
                result.error_code, result.error_message = error.code, str(error)
    return CreateAclsResponse(results=results)
