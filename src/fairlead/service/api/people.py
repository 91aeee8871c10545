"""Routes for people: their tokens, their sign-in to the page, and the audit log."""

import asyncio
import re
import time
from typing import Annotated

from fastapi import APIRouter, Query, Response
from fastapi import Path as PathParameter
from pydantic import AfterValidator

from fairlead.journal import Envelope, Journal
from fairlead.model.api_types import AuditEntry, AuditPage, Changed, NewToken, PageCode, TokenInfo, TokenList
from fairlead.model.faults import shortened
from fairlead.model.specs import Job, path_to_root
from fairlead.people import audit_log
from fairlead.people.audit_log import AuditRecords
from fairlead.people.rules import Caller, Forbidden, hidden_leaves, is_queue, operates, rules_all, sees_entry
from fairlead.people.tokens import Token
from fairlead.scheduler.admission import Invalid, Unknown
from fairlead.scheduler.facts import Fact
from fairlead.service.api.access import Known
from fairlead.service.api.answers import Json
from fairlead.service.api.requests import QueuePath, Text, TokenRequest
from fairlead.service.api.state_client import OnePerPerson, StateClient
from fairlead.service.page.door import CODE_SECONDS, Door

PAGE_OF_RECORDS = 2000
MOST_PAGES = 10
"""Pages of records that one request examines; the next request continues."""


def _check_token(text: str) -> str:
    if not re.fullmatch(r"[0-9a-f]{12}", text):
        raise ValueError(f"{shortened(text)!r} is not a token's id: `fairlead token list` shows them")
    return text


TokenId = Annotated[str, AfterValidator(_check_token), PathParameter()]


def add_tokens(api: APIRouter, client: StateClient, audit_records: AuditRecords) -> None:
    authenticator = client.authenticator

    @api.get("/v1/tokens", response_model=TokenList)
    async def tokens(caller: Known) -> Response:
        """The caller's tokens, or for root all, without their secrets."""
        everybody = rules_all(authenticator.rules, caller)
        seen = [each for each in authenticator.tokens.all() if everybody or each.uid == caller.person.uid]
        return Json({"tokens": [_told(each) for each in seen]})

    @api.post("/v1/tokens", status_code=201, response_model=NewToken)
    async def new_token(request: TokenRequest, caller: Known) -> Response:
        """Create a token, which identifies a person on other machines. It is shown only this once."""
        name = request.user or caller.person.name
        if caller.token is not None:
            raise Forbidden("a token cannot make tokens: make one on the scheduler's machine")
        if name != caller.person.name and not rules_all(authenticator.rules, caller):
            raise Forbidden(f"you are {caller.person.name}: only root or {name} may make a token for {name!r}")
        person = await authenticator.person(name)
        if person is None:
            raise Unknown(f"no account {name!r} here: a token needs one")
        for queue in request.queues or ():
            if not is_queue(authenticator.rules, queue):
                raise Unknown(f"no queue {queue!r} for the token: `fairlead queues` shows the existing ones")
        if request.seconds is not None and time.time() + request.seconds > 2**40:
            raise Invalid("expires too far in the future: name an earlier time, or omit the expiry")
        token, secret = await asyncio.to_thread(
            lambda: authenticator.tokens.new(person, seconds=request.seconds, queues=request.queues, read_only=request.read_only)
        )
        await asyncio.to_thread(audit_records.done, caller.person.name, f"made token {token.id} for {name}")
        return Json({**_told(token), "token": secret}, 201)

    @api.delete("/v1/tokens/{token}", response_model=Changed)
    async def revoke(token: TokenId, caller: Known) -> Response:
        """Revoke a token: its streams and waiting requests end, and requests whose body is incomplete."""
        if caller.queues is not None:
            raise Forbidden("this token is limited to some queues: it cannot revoke tokens")
        of = None if rules_all(authenticator.rules, caller) else caller.person
        gone = await asyncio.to_thread(authenticator.tokens.revoke, token, of)
        client.wakeups.wake([("token", gone.id)])
        await asyncio.to_thread(audit_records.done, caller.person.name, f"revoked token {gone.id} of {gone.user}")
        return Json({"changed": True})


def add_page(api: APIRouter, audit_records: AuditRecords, door: Door) -> None:
    @api.post("/v1/page", status_code=201, response_model=PageCode)
    async def page(caller: Known) -> Response:
        """A code that signs a browser in to the page as the caller: once, within a minute."""
        url, code = door.code(caller)
        await asyncio.to_thread(audit_records.done, caller.person.name, "opened the page")
        return Json({"url": url, "code": code, "seconds": CODE_SECONDS}, 201)


def _told(token: Token) -> TokenInfo:
    return {
        "id": token.id,
        "user": token.user,
        "created_at": token.created,
        "expires_at": token.expires,
        "queues": token.queues,
        "read_only": token.read_only,
    }


def add_log(api: APIRouter, client: StateClient, journal: Journal, audit_records: AuditRecords) -> None:
    one_each = OnePerPerson("the audit log is being read for you already")

    @api.get("/v1/log", response_model=AuditPage)
    async def log(
        caller: Known,
        user: Text | None = None,
        queue: QueuePath | None = None,
        since: Annotated[float, Query(ge=0, le=2**53, description="Seconds since the epoch.")] = 0,
        before: Annotated[
            str, Query(pattern=r"^\d{0,16}-(\d{1,16}(\.\d{1,16})?)?$", description="`next` of another page.")
        ] = "-",
        limit: Annotated[int, Query(ge=1, le=10_000)] = 1000,
    ) -> Response:
        """The audit log, newest last: people's actions and refusals, as far back as the journal goes, at most 1 MiB. `next`
        is the `before` of earlier entries.
        """
        rules, start = client.authenticator.rules, audit_log.Position.read(before)
        path = queue.strip("/") if queue is not None else None
        # Other people's records are visible only to operators.
        whose = user if user is not None or operates(rules, caller) else caller.person.name

        def allows(entry: AuditEntry, job: Job | None) -> bool:
            named = user is None or entry["by"] == user  # hidden authors must not match
            here = path is None or (entry["queue"] is not None and path in path_to_root(entry["queue"]))
            return named and here and sees_entry(rules, caller, entry, job)

        with one_each.of(caller):
            hidden = await client.read(lambda state: hidden_leaves(rules, caller, state.tree.names))
            newest = audit_records.newest_first(whose, since, start.record)
            noted = (audit_log.visible_record(caller, record, hidden) for record in newest)
            page = await asyncio.to_thread(audit_log.Page, allows, noted, start, limit)
            for _ in range(MOST_PAGES):
                found = await asyncio.to_thread(journal.caused, since, user, page.before.fact, PAGE_OF_RECORDS)
                await asyncio.to_thread(page.add_facts, await _told_facts(client, caller, found))
                if not found or page.is_full:
                    break
            is_last = not found and await asyncio.to_thread(page.add_records)
        return Json(page.told(is_last))


async def _told_facts(
    client: StateClient, caller: Caller, page: list[tuple[Envelope, Fact]]
) -> list[tuple[int, AuditEntry, Job | None]]:
    facts = [fact for _, fact in page]
    specs = await client.read(lambda s: audit_log.specs_in(facts, s.index.specs))
    told = []
    for envelope, fact in page:
        job = specs.get(audit_log.job_of(fact))
        told.append((envelope.sequence, audit_log.visible_fact(client.authenticator.rules, caller, envelope, fact, job), job))
    return told
