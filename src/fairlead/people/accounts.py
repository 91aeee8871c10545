"""Who there is: the accounts and groups of this machine, as the system's own directory tells of them.

A directory may be a server on the network, so a look-up may block; what was found is believed for a minute.
"""

import grp
import os
import pwd
import re
import time
from typing import NamedTuple

BELIEVED_FOR = 60.0
"""Seconds; so long a person whose groups change keeps those that they had, unless the configuration is read again."""
MOST_REMEMBERED = 10_000

_PLAIN_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@+-]{0,127}")


class Person(NamedTuple):
    """An account: its name, its numbers, the names of the groups that it is in, and of those the first, which is `gid`'s."""

    name: str
    uid: int
    gid: int
    groups: frozenset[str] = frozenset()
    group: str = ""


class Accounts:
    """Finds people. Threads may share one."""

    def __init__(self) -> None:
        self._found: dict[int, tuple[float, Person | None]] = {}

    def remembered(self, uid: int) -> Person | None:
        """The person with a uid, if they were looked up a moment ago; never blocks."""
        until, person = self._found.get(uid, (0.0, None))
        return person if until > time.monotonic() else None

    def has_seen(self, uid: int) -> bool:
        """Whether there was an account with this uid when it was looked for last; never blocks."""
        return uid in self._found

    def by_uid(self, uid: int) -> Person | None:
        """The person with a uid; None where there is no such account, or its name can be no queue's."""
        person = self.remembered(uid)
        if person is None:
            try:
                person = _person(pwd.getpwuid(uid))
            except KeyError:
                person = None
            if person is None:
                self._found.pop(uid, None)
            else:
                if len(self._found) >= MOST_REMEMBERED:
                    self._found = {}
                self._found[uid] = time.monotonic() + BELIEVED_FOR, person
        return person

    def by_name(self, name: str) -> Person | None:
        """The person with a name; None where there is no such account."""
        try:
            return self.by_uid(pwd.getpwnam(name).pw_uid)
        except (KeyError, ValueError):
            return None

    def knows(self, name: str) -> bool:
        """Whether there is an account, or with ``@`` before it a group, of a name."""
        try:
            grp.getgrnam(name[1:]) if name.startswith("@") else pwd.getpwnam(name)
        except (KeyError, ValueError):
            return False
        return True

    def forget(self) -> None:
        """Look everybody up anew."""
        self._found = {uid: (0.0, person) for uid, (_, person) in self._found.items()}


def myself() -> Person:
    """Whose process this is, if need be by the number alone."""
    uid = os.geteuid()
    try:
        found = _person(pwd.getpwuid(uid))
    except KeyError:
        found = None
    return found or Person(f"uid-{uid}", uid, os.getegid())


def _person(entry: pwd.struct_passwd) -> Person | None:
    if not _PLAIN_NAME.fullmatch(entry.pw_name):
        return None
    groups = {}
    for gid in os.getgrouplist(entry.pw_name, entry.pw_gid):
        try:
            groups[gid] = grp.getgrgid(gid).gr_name
        except KeyError:  # a number that has no name can be named by nobody
            continue
    first = groups.get(entry.pw_gid, "")
    return Person(entry.pw_name, entry.pw_uid, entry.pw_gid, frozenset(groups.values()), first)
