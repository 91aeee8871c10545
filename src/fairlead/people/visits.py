"""Visits: browsers that are signed in to the page. They are kept in memory only, so they end with the scheduler.

An authenticated caller gets a code, which a browser exchanges for a cookie once. A visit is bound to one host name. Browsers
send cookies to every port of a host, so on this machine each visit has a host name of its own that nobody can guess.
"""

import hmac
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass

from fairlead.people.rules import Caller
from fairlead.people.tokens import hash_of

CODE_SECONDS = 60.0
IDLE_SECONDS = 12 * 3600.0
"""A visit without a request for this long ends."""
MOST_CODES, MOST_VISITS = 5, 20
"""Unused codes, and visits, of one person; a new one ends the oldest."""


@dataclass
class _Visit:
    """A visit, or a code that is not used yet; `hash` is that of its secret, `until` when it ends without a further request."""

    caller: Caller
    host: str
    hash: str
    until: float


class Visits:
    """All codes and visits. For the event loop."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._codes: dict[str, _Visit] = {}
        self._visits: dict[str, _Visit] = {}

    def new_code(self, caller: Caller, host: str = "") -> tuple[str, str]:
        """Return a code for a caller, and the host name at which to use it: a fresh one below ``localhost`` by default."""
        code, host = secrets.token_urlsafe(16), host or f"{secrets.token_hex(12)}.localhost"
        self._codes, key = self._with_room(self._codes, caller, MOST_CODES), hash_of(code)
        self._codes[key] = _Visit(caller, host, key, self._clock() + CODE_SECONDS)
        return code, host

    def _with_room(self, kept: dict[str, _Visit], caller: Caller, most: int) -> dict[str, _Visit]:
        """Return what is not over, without the oldest of this caller if there are `most`."""
        now = self._clock()
        left = {key: each for key, each in kept.items() if each.until > now}
        mine = [key for key, each in left.items() if each.caller.person.uid == caller.person.uid]
        for key in sorted(mine, key=lambda key: left[key].until)[: max(0, len(mine) - most + 1)]:
            del left[key]
        return left

    def code_of(self, code: str, host: str) -> Caller | None:
        """Return whose code it is, if it may be used at this host now."""
        found = self._codes.get(hash_of(code))
        return found.caller if found is not None and found.host == host and found.until > self._clock() else None

    def enter(self, code: str, host: str) -> str | None:
        """Exchange a code for a cookie; None for one that is wrong, used, too old, or for another host."""
        caller = self.code_of(code, host)
        if caller is None:
            return None
        del self._codes[hash_of(code)]
        return self.begin(caller, host)

    def begin(self, caller: Caller, host: str) -> str:
        number, secret = secrets.token_hex(8), secrets.token_urlsafe(32)
        self._visits = self._with_room(self._visits, caller, MOST_VISITS)
        self._visits[number] = _Visit(caller, host, hash_of(secret), self._clock() + IDLE_SECONDS)
        return f"{number}.{secret}"

    def find(self, cookie: str, host: str) -> Caller | None:
        """Return whose visit a cookie is, and prolong it; None if it is wrong, over, or for another host."""
        number, _, secret = cookie.partition(".")
        found, now = self._visits.get(number), self._clock()
        if found is None or found.until <= now or found.host != host:
            return None
        if not hmac.compare_digest(hash_of(secret), found.hash):
            return None
        found.until = now + IDLE_SECONDS
        return found.caller

    def leave(self, cookie: str, host: str) -> None:
        if self.find(cookie, host) is not None:
            del self._visits[cookie.partition(".")[0]]

    def knows(self, host: str) -> bool:
        now = self._clock()
        return any(each.host == host and each.until > now for each in (*self._codes.values(), *self._visits.values()))
