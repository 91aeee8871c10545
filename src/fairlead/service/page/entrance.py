"""The page's application: who visits, and from where, before anything is shown or done.

- A host name that is neither the scheduler's own nor a visit's is refused, against DNS rebinding.
- A cookie is good for one host name. On the page's own port the kernel says whose connection it is: it must be the visitor's.
- A change must come from the page itself, by its Origin and Sec-Fetch-Site. Only a code may come from a file (Origin: null).
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Hashable, Mapping
from functools import partial
from typing import Any
from urllib.parse import parse_qs

from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from fairlead.html_page import render, text_of
from fairlead.people.audit_log import AuditRecords
from fairlead.people.authenticator import Authenticator, Stranger
from fairlead.people.bounds import DEFAULT, Rates, default_bounds
from fairlead.people.rules import Caller
from fairlead.service.connections.acceptor import uid_of_client
from fairlead.service.connections.listening import LOOPBACK, is_accepted, name_in
from fairlead.service.page.asking import Declined
from fairlead.service.page.door import Door
from fairlead.service.page.site import Site

log = logging.getLogger("fairlead")

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",  # with no-referrer, browsers would send the Origin null
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
LARGEST_FORM = 64 * 2**10
FORM_SECONDS, MOST_FORMS = 2.0, 5
"""How long a form may take to arrive, and how many of one account, or from one address, may be on their way at once."""
FILES = {"/page/page.css": "text/css", "/page/page.js": "text/javascript"}
SIGN_IN = "/page/enter"


class Intruder(Declined):
    """A connection of an account that is not the visit's, or is unknown; `by` is what is known of it."""

    def __init__(self, by: str, text: str) -> None:
        super().__init__(403, text)
        self.by = by


class PageEntrance:
    """Serves the page to those who are signed in, and signs them in.

    hosts : names under which the page is served with TLS
    records : logs refused attempts to sign in, or to use another's visit
    """

    def __init__(self, door: Door, authenticator: Authenticator, hosts: set[str], site: Site, records: AuditRecords) -> None:
        self._visits, self._authenticator, self._site = door.visits, authenticator, site
        self._hosts, self._records = hosts - set(LOOPBACK), records
        self._rates = Rates()
        self._coming: Counter[Any] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        try:
            response = await self._answer(request)
        except Intruder as declined:
            self._records.refused(declined.by, f"{request.method} {scope['path']}", str(declined), stranger=True)
            response = self._site.failure(declined)
        except Declined as declined:
            response = self._site.failure(declined)
        except Stranger as stranger:
            if (request.method, scope["path"]) == ("POST", SIGN_IN):
                self._records.refused(stranger.by, f"POST {SIGN_IN}", str(stranger), stranger=True)
            response = HTMLResponse(render("enter.html", why=str(stranger), path=scope["path"]), 401)
        except ClientDisconnect:
            return
        except Exception:
            log.exception("the page %s", scope["path"])
            response = self._site.failure(Declined(500, "an internal error: see the scheduler's log"))
        for name, value in HEADERS.items():
            if not (name == "Cache-Control" and scope["path"] in FILES):
                response.headers[name] = value
        if response.status_code in (408, 413, 429):  # the rest of a form may be on its way
            response.headers["Connection"] = "close"
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        method, path, host = request.method, request.scope["path"], name_in(request.headers.get("host", ""))
        own = request.scope["scheme"] == "https" and is_accepted(host, self._hosts)
        if not own and not (host.endswith(".localhost") and self._visits.knows(host)):
            raise Declined(421, f"{host or 'no host'!r} is not a name of this page: `fairlead page` opens it")
        if path in FILES:
            return Response(text_of(path.rpartition("/")[2]), media_type=FILES[path], headers={"Cache-Control": "max-age=60"})
        uid = None if own else await uid_of_client(request.scope)  # with TLS, a proxy may be in between
        if not own and uid is None:
            why = "the kernel does not say whose connection this is: connect to 127.0.0.1 from this machine"
            raise Intruder("an unknown account", why)
        if path == SIGN_IN and method == "POST":
            return await self._enter(request, host, own, uid)
        caller = await self._caller(request, host, own, uid)
        if method in ("GET", "HEAD"):
            visit = partial(self._visits.find, _cookie(request, own), host)
            return await self._site.show(caller, path, dict(request.query_params), visit)
        if method != "POST":
            raise Declined(405, f"{method}: the page takes GET and POST")
        self._check_origin(request, own, ())
        form = await self._form(request, caller.person.uid)
        if path == "/page/leave":
            self._visits.leave(_cookie(request, own), host)
            raise Stranger("you are signed out", caller.person.name, known=True)
        return await self._site.act(caller, path, form)

    async def _enter(self, request: Request, host: str, own: bool, uid: int | None) -> Response:
        """Exchange a code, or with TLS a token, for a cookie.

        The answer is a page that goes on by itself: the browser came from a file, so it sends the cookie to no redirect.
        """
        address = request.client.host if request.client else ""
        who = address if uid is None else uid
        self._check_rate(who, DEFAULT.requests, 10)
        self._check_origin(request, own, ("null",))
        if (dest := request.headers.get("sec-fetch-dest", "document")) != "document":  # a frame, or a script of another page
            raise Declined(403, f"this would be shown as {dest[:40]!r}: sign in in a page of its own")
        code = (await self._form(request, who)).get("code", "").strip()
        caller = self._visits.code_of(code, host)
        if caller is not None:
            self._check_uid(caller, uid)
        elif own and request.headers.get("origin") != "null":  # a file has a code only; another page might have a token
            caller = await self._authenticator.by_token(code, address)
        else:
            raise Stranger("the code is used, or older than a minute", address, known=False)
        cookie = self._visits.enter(code, host) or self._visits.begin(caller, host)
        answer = HTMLResponse(render("entered.html", you=caller.person.name))
        name, secure = _cookie_name(own), "; Secure" if own else ""
        answer.headers["Set-Cookie"] = f"{name}={cookie}; Path=/; HttpOnly; SameSite=Strict{secure}"
        return answer

    async def _caller(self, request: Request, host: str, own: bool, uid: int | None) -> Caller:
        found = self._visits.find(_cookie(request, own), host)
        if found is None:
            address = request.client.host if request.client else ""
            self._check_rate(address if uid is None else uid, DEFAULT.requests, 1)
            raise Stranger("you are not signed in", host, known=False)
        self._check_uid(found, uid)
        caller = await self._authenticator.reauthenticate(found)
        if caller is None:
            raise Stranger("your token is revoked or expired, or your account is gone", found.person.name, known=True)
        self._check_rate(caller.person.uid, default_bounds(self._authenticator.rules, caller).requests, 5)
        return caller

    def _check_uid(self, caller: Caller, uid: int | None) -> None:
        """Refuse a connection from a process of this machine that is of another account."""
        if uid not in (None, 0, caller.person.uid):
            raise Intruder(f"uid {uid}", f"this connection is uid {uid}'s, and the visit is {caller.person.name}'s")

    def _check_rate(self, who: Any, a_second: float | None, count: int) -> None:
        if self._rates.wait(who, a_second, count):
            raise Declined(429, "too many requests: slow down")

    def _check_origin(self, request: Request, own: bool, others: tuple[str, ...]) -> None:
        """Refuse a change that another page asks for."""
        origin, host = request.headers.get("origin", ""), request.headers.get("host", "")
        if origin in others:
            return
        site = request.headers.get("sec-fetch-site", "same-origin")
        if origin != f"{'https' if own else 'http'}://{host}" or site != "same-origin":
            raise Declined(403, f"this comes from {origin[:200] or 'nowhere'!r}, not from the page itself")

    async def _form(self, request: Request, who: Hashable) -> dict[str, str]:
        if self._coming[who] >= MOST_FORMS:
            raise Declined(429, "too many forms come at once: slow down")
        self._coming[who] += 1
        data = b""
        try:
            async with asyncio.timeout(FORM_SECONDS):
                async for piece in request.stream():
                    data += piece
                    if len(data) > LARGEST_FORM:
                        raise Declined(413, f"the form is larger than {LARGEST_FORM >> 10} KiB")
        except TimeoutError:
            raise Declined(408, f"the form did not come within {FORM_SECONDS:g} s") from None
        finally:
            self._coming -= Counter([who])
        try:
            fields: Mapping[str, list[str]] = parse_qs(data.decode("ascii"), max_num_fields=100, keep_blank_values=True)
        except ValueError:
            raise Declined(400, "this is no form") from None
        return {name: values[-1] for name, values in fields.items()}


def beside(page: ASGIApp, api: ASGIApp) -> ASGIApp:
    """Return the application of a listener that has the page, and the API at all other paths."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        is_page = scope["path"] == "/" or scope["path"].startswith("/page/")
        await (page if is_page else api)(scope, receive, send)

    return answer


def _cookie_name(own: bool) -> str:
    return "__Host-fairlead" if own else "fairlead"


def _cookie(request: Request, own: bool) -> str:
    """Return the visit's cookie, empty without one. Other services of the host may set any that they like."""
    pairs = (each.strip().partition("=") for each in request.headers.get("cookie", "").split(";"))
    return next((value for name, _, value in pairs if name == _cookie_name(own)), "")
