"""Visits: browsers that are signed in to the page. They are kept in memory only, so they end with the scheduler.

An authenticated caller gets a code, which a browser exchanges for a cookie once. A visit is bound to one host name. Browsers
send cookies to every port of a host, so on this machine each visit has a host name of its own that nobody can guess.
"""

import hashlib
import hmac
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass

from fairlead.people.rules import Caller

CODE_SECONDS = 60.0
IDLE_SECONDS = 12 * 3600.0
"""A visit without a request for this long ends."""
MOST_CODES, MOST_VISITS = 5, 20
"""Unused codes, and visits, of one person; a new one ends the oldest."""


@dataclass
class _Pending:
    """A code that is not used yet."""

    caller: Caller
    host: str
    until: float


@dataclass
class _Visit:
    """A visit; `hash` is that of its cookie's secret, and `until` is when it ends without a further request."""

    caller: Caller
    host: str
    hash: str
    until: float


class Visits:
    """All codes and visits. For the event loop."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._codes: dict[str, _Pending] = {}
        self._visits: dict[str, _Visit] = {}

    def new_code(self, caller: Caller, host: str = "") -> tuple[str, str]:
        """Return a code for a caller, and the host name at which to use it: a fresh one below ``localhost`` by default."""
        now, code = self._clock(), secrets.token_urlsafe(16)
        host = host or f"{secrets.token_hex(12)}.localhost"
        self._codes = {key: each for key, each in self._codes.items() if each.until > now}
        mine = [key for key, each in self._codes.items() if each.caller.person.uid == caller.person.uid]
        for key in mine[: max(0, len(mine) - MOST_CODES + 1)]:
            del self._codes[key]
        self._codes[_hash(code)] = _Pending(caller, host, now + CODE_SECONDS)
        return code, host

    def code_of(self, code: str, host: str) -> Caller | None:
        """Return whose code it is, if it may be used at this host now."""
        found = self._codes.get(_hash(code))
        return found.caller if found is not None and found.host == host and found.until > self._clock() else None

    def enter(self, code: str, host: str) -> str | None:
        """Exchange a code for a cookie; None for one that is wrong, used, too old, or for another host."""
        caller = self.code_of(code, host)
        if caller is None:
            return None
        del self._codes[_hash(code)]
        return self.begin(caller, host)

    def begin(self, caller: Caller, host: str) -> str:
        """Begin a visit at a host; return its cookie."""
        now, number, secret = self._clock(), secrets.token_hex(8), secrets.token_urlsafe(32)
        self._visits = {key: each for key, each in self._visits.items() if each.until > now}
        mine = [key for key, each in self._visits.items() if each.caller.person.uid == caller.person.uid]
        for key in sorted(mine, key=lambda key: self._visits[key].until)[: max(0, len(mine) - MOST_VISITS + 1)]:
            del self._visits[key]
        self._visits[number] = _Visit(caller, host, _hash(secret), now + IDLE_SECONDS)
        return f"{number}.{secret}"

    def find(self, cookie: str, host: str) -> Caller | None:
        """Return whose visit a cookie is, and prolong it; None if it is wrong, over, or for another host."""
        number, _, secret = cookie.partition(".")
        found, now = self._visits.get(number), self._clock()
        if found is None or found.until <= now or found.host != host:
            return None
        if not hmac.compare_digest(_hash(secret), found.hash):
            return None
        found.until = now + IDLE_SECONDS
        return found.caller

    def leave(self, cookie: str, host: str) -> None:
        """End a visit."""
        if self.find(cookie, host) is not None:
            del self._visits[cookie.partition(".")[0]]

    def knows(self, host: str) -> bool:
        """True if a visit or an unused code is for this host."""
        now = self._clock()
        known: list[_Pending | _Visit] = [*self._codes.values(), *self._visits.values()]
        return any(each.host == host and each.until > now for each in known)


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
