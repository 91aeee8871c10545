"""Requests about people: their tokens, and who did what."""

import asyncio
import time
from typing import Annotated

from fastapi import APIRouter, Query, Response
from fastapi import Path as PathParameter

from fairlead.journal import Envelope, Journal
from fairlead.model.api_types import Changed, Doing, DoingList, NewToken, TokenInfo, TokenList
from fairlead.model.specs import Job
from fairlead.people import doings
from fairlead.people.deeds import Deeds
from fairlead.people.door import Door
from fairlead.people.rules import Forbidden, rules_all
from fairlead.people.tokens import Token
from fairlead.scheduler.admission import Refused, Unknown
from fairlead.scheduler.facts import Fact
from fairlead.service.api.access import Known
from fairlead.service.api.asking import Asker, Json
from fairlead.service.api.requests import QueuePath, Text, TokenRequest

PAGE_OF_RECORDS = 2000

TokenId = Annotated[str, PathParameter(pattern=r"^[0-9a-f]{12}$")]


def add_tokens(api: APIRouter, door: Door, deeds: Deeds) -> None:
    @api.get("/v1/tokens", response_model=TokenList)
    async def tokens(caller: Known) -> Response:
        """The tokens that there are, but not the secret in them: one's own, or for root all."""
        everybody = rules_all(door.rules, caller)
        return Json(
            {"tokens": [_told(each) for each in door.tokens.all() if everybody or each.uid == caller.person.uid]}
        )

    @api.post("/v1/tokens", status_code=201, response_model=NewToken)
    async def new_token(request: TokenRequest, caller: Known) -> Response:
        """Make a token, by which a person is known who calls from elsewhere. This is the only time that it is told."""
        name = request.user or caller.person.name
        if caller.token is not None:
            raise Forbidden("a token makes no other tokens: make one on the machine itself")
        if name != caller.person.name and not rules_all(door.rules, caller):
            raise Forbidden(
                f"you are {caller.person.name}: a token for {name!r} is made by root, or by {name} themselves"
            )
        person = await door.person(name)
        if person is None:
            raise Unknown(f"there is no account {name!r} here: a token is for somebody who has one")
        if request.seconds is not None and time.time() + request.seconds > 2**40:
            raise Refused("that is for ever: leave out when it expires")
        token, secret = await asyncio.to_thread(
            lambda: door.tokens.new(person, seconds=request.seconds, queues=request.queues, read_only=request.read_only)
        )
        await asyncio.to_thread(deeds.done, caller.person.name, f"made token {token.id} for {name}")
        return Json({**_told(token), "token": secret}, 201)

    @api.delete("/v1/tokens/{token}", response_model=Changed)
    async def revoke(token: TokenId, caller: Known) -> Response:
        """Have a token be one no more."""
        if caller.queues is not None:
            raise Forbidden("this token is for some queues only: it revokes no tokens")
        of = None if rules_all(door.rules, caller) else caller.person
        gone = await asyncio.to_thread(door.tokens.revoke, token, of)
        await asyncio.to_thread(deeds.done, caller.person.name, f"revoked token {gone.id} of {gone.user}")
        return Json({"changed": True})


def _told(token: Token) -> TokenInfo:
    return {
        "id": token.id,
        "user": token.user,
        "created_at": token.created,
        "expires_at": token.expires,
        "queues": token.queues,
        "read_only": token.read_only,
    }


def add_log(api: APIRouter, asker: Asker, journal: Journal, deeds: Deeds) -> None:
    @api.get("/v1/log", response_model=DoingList)
    async def log(
        caller: Known,
        user: Text | None = None,
        queue: QueuePath | None = None,
        since: Annotated[float, Query(ge=0, le=2**53, description="Seconds since the epoch of 1970.")] = 0,
        limit: Annotated[int, Query(ge=1, le=10_000)] = 1000,
    ) -> Response:
        """Who did what, the newest last: what people caused, and what they were refused. As far as the journal still tells."""
        rules = asker.door.rules
        path = queue.strip("/") if queue is not None else None
        found: list[Doing] = []

        def take(entry: Doing, job: Job | None) -> None:
            if doings.is_in(entry, path) and doings.may_know(rules, caller, entry, job):
                found.append(entry)

        before: int | None = None
        while len(found) < limit:
            page = await asyncio.to_thread(journal.caused, since, user, before, PAGE_OF_RECORDS)
            for entry, job in await _told_facts(asker, page):
                take(entry, job)
            if len(page) < PAGE_OF_RECORDS:
                break
            before = page[-1][0].sequence
        for deed in await asyncio.to_thread(lambda: list(deeds.since(since))):
            if user is None or deed.by == user:
                take(doings.told_deed(deed), None)
        return Json({"log": doings.newest(found, limit)})


async def _told_facts(asker: Asker, page: list[tuple[Envelope, Fact]]) -> list[tuple[Doing, Job | None]]:
    facts = [fact for _, fact in page]
    specs = await asker.read(lambda s: doings.specs_in(facts, s.index.specs))
    told = []
    for envelope, fact in page:
        job = specs.get(doings.job_of(fact))
        told.append((doings.told_fact(envelope, fact, job), job))
    return told
