"""The accounts and groups of this machine, looked up in the system's directory.

The directory may be a server on the network, so a look-up may block. Results are cached for a minute.
"""

import grp
import os
import pwd
import re
import time
from contextlib import suppress
from typing import NamedTuple

CACHE_SECONDS = 60.0
"""How long a person keeps their old groups after a change, unless the configuration is reloaded."""
MOST_CACHED = 10_000

_PLAIN_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@+-]{0,127}")


class Person(NamedTuple):
    """An account: name, numbers, the names of all its groups, and `group`, the name of its primary group (`gid`)."""

    name: str
    uid: int
    gid: int
    groups: frozenset[str] = frozenset()
    group: str = ""


class Accounts:
    """Finds people by name or uid. Thread-safe."""

    def __init__(self) -> None:
        self._found: dict[int, tuple[float, Person | None]] = {}

    def remembered(self, uid: int) -> Person | None:
        """Return the cached person with this uid, or None. Never blocks."""
        until, person = self._found.get(uid, (0.0, None))
        return person if until > time.monotonic() else None

    def has_seen(self, uid: int) -> bool:
        """True if the last look-up of this uid found an account. Never blocks."""
        return uid in self._found

    def by_uid(self, uid: int) -> Person | None:
        """Return the person with this uid; None without such an account, or if its name cannot be a queue name."""
        if (person := self.remembered(uid)) is not None:
            return person
        person = _person(uid)
        if person is None:
            self._found.pop(uid, None)
        else:
            if len(self._found) >= MOST_CACHED:
                self._found = {}
            self._found[uid] = time.monotonic() + CACHE_SECONDS, person
        return person

    def by_name(self, name: str) -> Person | None:
        try:
            return self.by_uid(pwd.getpwnam(name).pw_uid)
        except (KeyError, ValueError):
            return None

    def knows(self, name: str) -> bool:
        """True if an account of this name exists; with a leading ``@``, a group."""
        try:
            grp.getgrnam(name[1:]) if name.startswith("@") else pwd.getpwnam(name)
        except (KeyError, ValueError):
            return False
        return True

    def forget(self) -> None:
        """Expire the cache: look everybody up again."""
        self._found = {uid: (0.0, person) for uid, (_, person) in self._found.items()}


def myself() -> Person:
    """Return the owner of this process; without an account, a person named after the uid."""
    uid = os.geteuid()
    return _person(uid) or Person(f"uid-{uid}", uid, os.getegid())


def _person(uid: int) -> Person | None:
    try:
        entry = pwd.getpwuid(uid)
    except KeyError:
        return None
    if not _PLAIN_NAME.fullmatch(entry.pw_name):
        return None
    groups = {}
    for gid in os.getgrouplist(entry.pw_name, entry.pw_gid):
        with suppress(KeyError):  # a gid without a name cannot appear in a rule
            groups[gid] = grp.getgrgid(gid).gr_name
    first = groups.get(entry.pw_gid, "")
    return Person(entry.pw_name, entry.pw_uid, entry.pw_gid, frozenset(groups.values()), first)
