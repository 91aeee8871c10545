"""`fairlead node`: makes this machine a node of a scheduler on another one, and keeps its supervisor running.

HOME/node has the node's key and its supervisor's files. The supervisor does the work and outlives this process.
"""

import hashlib
import os
import pwd
import signal
import socket
import threading
import time
from contextlib import suppress
from pathlib import Path

from msgspec.structs import replace

import fairlead
from fairlead.cli.scheduler import say
from fairlead.data_folder import home_folder, make_home, remove_folder, write_private
from fairlead.engines.local.checkpoints import shared_checkpoints
from fairlead.engines.local.machine import this_machine
from fairlead.engines.local.member import (
    NEXT,
    UNHEARD,
    Membership,
    change_membership,
    read_membership,
    start_member,
    supervisor_in,
    write_membership,
)  # fmt: skip
from fairlead.engines.local.messages import PROTOCOL
from fairlead.engines.remote.joining import DEFAULT_PORT, Joined, Request, ask, ask_to_join
from fairlead.engines.remote.keys import NotAdmitted, certificate_in, make_certificate, sign
from fairlead.failure import Failure, WrongUsage, failing
from fairlead.journal import head
from fairlead.model.documents import read_configuration
from fairlead.model.quantity import round_quantity
from fairlead.model.specs import Node
from fairlead.people.accounts import myself
from fairlead.plain_text import listed, plain
from fairlead.policies.registry import find_policy

LOOK_EVERY = 2.0
"""Seconds between two checks of the supervisor."""
ENDS_WITHIN = 20.0
"""Seconds for tasks to end after Ctrl-C."""
CLOCKS = 2.0
"""Seconds that clocks may differ without a warning."""


def folder_of(home: Path | None) -> Path:
    return (home or home_folder()).absolute() / "node"


def join(
    address: str, token: str | None, name: str | None, home: Path | None, config: Path | None, any_uid: bool = False
) -> Membership:
    """Join, or renew what a member shares; return the membership. Raises Failure, OSError."""
    host, port = _host_and_port(address)
    node = _shared(config)
    folder = folder_of(home)
    with failing("", OSError):
        make_home(folder.parent)
    try:
        last = read_membership(folder / "supervisor")
        if token is None and last is None:
            raise Failure(
                f"this machine is not a node yet: on the scheduler's machine, run `fairlead node token`; then here: "
                f"fairlead node join {address} TOKEN"
            )
        own, scheduler, about = (last.own, last.scheduler, last.about) if last is not None else ("", "", {})
        place = [head.this_machine(), folder.parent.stat().st_ino]
        if token is None and about.get("place", place) != place:
            its = about.get("name", "NODE")
            raise Failure(
                f"{folder.parent}: this is a copy of node {its}'s folder: if both run, tasks run twice: join with a new token; "
                f"or, if the other is gone, with that of `fairlead node token --name {its}`"
            )
        if token is not None:
            own, joined = _ask_with_token(folder / "supervisor", host, port, token, name or node.name)
            answer = joined.answer
            if name and answer.name != name:
                say(f"the token is that of node {answer.name}, so this machine is not {name}")
            scheduler, about = (joined.scheduler, {"name": answer.name, "as_people": answer.as_people, "only": answer.only})
            _report(joined, any_uid)
        about |= {"any_uid": any_uid, "capacity": node.capacity, "labels": node.labels, "version": fairlead.__version__}
        about |= {"keeper": PROTOCOL, "place": place, "leaving": ""}
        found = [str(each[4][0]) for each in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)]
        return Membership(own, scheduler, list(dict.fromkeys(found)), port, about)
    except NotAdmitted:  # a ValueError, which says more
        raise
    except (ValueError, KeyError) as error:
        raise Failure(f"{folder}: the files of this node's membership cannot be read ({error}): join with a new token") from None
    except OSError as error:
        raise Failure(f"{host}:{port}: no scheduler takes nodes there: {error.strerror or error}") from None


def _ask_with_token(place: Path, host: str, port: int, token: str, name: str) -> tuple[str, Joined]:
    """Join by a new key; also return it. Raises NotAdmitted, OSError.

    The answer may be lost, or say that the scheduler records it later: so the next attempt with this token has the
    same key, and asks about it.
    """
    place.mkdir(parents=True, exist_ok=True, mode=0o700)
    kept = f"joining-{hashlib.sha256(token.encode()).hexdigest()[:16]}.pem"
    asked_before, person = (place / kept).exists(), myself()
    own = _next_key(place, kept)
    request = Request("", name, certificate_in(own), person.name, person.uid)
    if asked_before:
        joined = ask_to_join(host, port, token, replace(request, before=request.certificate, proof=sign(own, own)))
        if joined.answer.name:
            return own, joined
    return own, ask_to_join(host, port, token, request)


def _report(joined: Joined, any_uid: bool) -> None:
    """Say what differs from the scheduler's machine."""
    if joined.answer.version != fairlead.__version__:
        say(f"the scheduler is fairlead {joined.answer.version}, and this is {fairlead.__version__}")
    if abs(joined.ahead) > CLOCKS:
        how = "ahead of" if joined.ahead > 0 else "behind"
        say(f"this clock is {abs(joined.ahead):.0f} s {how} the scheduler's: set both by NTP")
    if joined.answer.only:
        say(f"only tasks of {joined.answer.only} run here: for everybody's, join as root")
    elif not joined.answer.as_people:
        say(f"all tasks run as {myself().name}")
    for name, uid in joined.answer.people.items():
        try:
            here = pwd.getpwnam(name).pw_uid
        except KeyError:
            say(f"{plain(name)} has work and no account here: their tasks run elsewhere")
        else:
            if here != uid and not any_uid:
                say(f"{plain(name)} has work and uid {here} here, not {uid}: their tasks run elsewhere, unless you add --any-uid")
    missing = [plain(each.encode("latin-1").decode("utf-8", "replace")) for each in joined.answer.folders if _is_missing(each)]
    if missing:
        say(f"not here, but there is work in it: {listed(missing)}: share each folder, or submit with `--send . --fetch PATTERN`")


def _is_missing(folder: str) -> bool:
    """Return whether a folder, with a character for each byte, is surely not here."""
    try:
        Path(os.fsdecode(folder.encode("latin-1"))).stat()
    except (OSError, ValueError) as error:  # else its owner may see it
        return isinstance(error, FileNotFoundError | NotADirectoryError)
    return False


def keep(membership: Membership, home: Path | None) -> None:
    """Keep the supervisor running until the node leaves or a signal comes. Raises Failure.

    SIGINT ends the tasks, which start again elsewhere; SIGTERM leaves them running under the supervisor. It ends, with its
    supervisor, if the scheduler knows the node's key no more.
    """
    folder, about = folder_of(home), membership.about
    place, ended = folder / "supervisor", threading.Event()
    signals: list[int] = []

    def hear(number: int, _: object) -> None:
        signals.append(number)
        ended.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, hear)
    checkpoints = shared_checkpoints(folder) if about["as_people"] and not about.get("only") else None
    _start(folder, membership, checkpoints)
    shares = "  ".join(f"{name} {round_quantity(name, amount)}" for name, amount in about["capacity"].items())
    say(f"node {about['name']} shares {shares}; Ctrl-C ends what runs here, `fairlead node leave` drains it first")
    alone = False
    while not ended.wait(LOOK_EVERY):
        now = read_membership(place)
        if now is None or (now.about["leaving"] and supervisor_in(place) is None):
            say("this machine has left")
            return
        was_alone, alone = alone, (place / UNHEARD).exists()
        if was_alone and alone and _is_refused(place, now):
            say(f"the scheduler has forgotten node {about['name']}: join with a token of `fairlead node token`")
            if (running := supervisor_in(place)) is not None:
                os.kill(running.pid, signal.SIGTERM)
            return
        if supervisor_in(place) is None:
            _start(folder, None, checkpoints)
    if signal.SIGINT in signals:
        say("ending what runs here: it starts again elsewhere")
        _let_go(place, "now", ENDS_WITHIN)


def leave(home: Path | None) -> None:
    """Drain this node, wait until it is empty, and forget the membership. Raises Failure."""
    folder = folder_of(home)
    if read_membership(folder / "supervisor") is None:
        raise Failure(f"{folder}: this machine is not a node: there is nothing to leave")
    if supervisor_in(folder / "supervisor") is None:
        _start(folder, None, None)
    say("waiting for the tasks here to end; Ctrl-C stops waiting, and the node leaves anyway")
    _let_go(folder / "supervisor", "drain", None)
    remove_folder(folder)
    say("this machine has left")


def rotate(home: Path | None) -> None:
    """Give this node a new key, which its scheduler accepts from now on instead of the present one. Raises Failure."""
    place = folder_of(home) / "supervisor"
    member = read_membership(place)
    if member is None:
        raise Failure(f"{place.parent}: this machine is not a node: it has no key to rotate")
    fresh = _next_key(place, NEXT)
    with failing(f"{member.hosts[-1]}:{member.port}: the scheduler cannot be reached: ", OSError):
        _ask(member, fresh)
    write_membership(place, member._replace(own=fresh, about=member.about | {"rotated": time.time()}))
    say(f"node {member.about['name']} has a new key; its tasks run on")


def _ask(member: Membership, key: str) -> Joined:
    """Have the scheduler know this node by another key; or by the present one, ask its name. Raises NotAdmitted, OSError."""
    person, before = myself(), certificate_in(member.own)
    asked = Request("", member.about["name"], certificate_in(key), person.name, person.uid, before=before)
    asked.proof = sign(member.own, key)
    for host in member.hosts[:-1]:
        with suppress(OSError):
            return ask(host, member.port, member.scheduler, asked)
    return ask(member.hosts[-1], member.port, member.scheduler, asked)


def _is_refused(place: Path, member: Membership) -> bool:
    """Return whether the scheduler says that it does not know this node's key."""
    with suppress(OSError, NotAdmitted):
        known = _ask(member, member.own).answer.name
        return not known and not (place / NEXT).exists() and read_membership(place) == member  # else it is being replaced
    return False


def _next_key(place: Path, name: str) -> str:
    """Return the node's next key and its certificate: kept before the scheduler is asked, whose answer may be lost."""
    kept = place / name
    if not kept.exists():
        with failing(f"{kept}: cannot be written: ", OSError, after=": fix that, then run the command again"):
            write_private(kept, make_certificate(f"fairlead {time.time_ns()}"), durable=True)
    return kept.read_text()


def _let_go(place: Path, how: str, within: float | None) -> None:
    """Have the supervisor leave, and wait until it has ended. Raises Failure if that takes longer."""
    change_membership(place, leaving=how)
    until = time.monotonic() + (within or float("inf"))
    while supervisor_in(place) is not None:
        if time.monotonic() > until:
            raise Failure("the scheduler does not answer: tasks here end when their lease is over")
        time.sleep(0.1)


def _start(folder: Path, membership: Membership | None, checkpoints: Path | None) -> None:
    with failing("", OSError):
        start_member(folder, membership, checkpoints)


def _shared(config: Path | None) -> Node:
    """Return what this machine shares: all of it, or what the only [[node]] of a file says."""
    if config is None:
        return this_machine({})
    found = read_configuration(config, find_policy)
    if len(found.nodes) > 1:
        raise Failure(f"{config}: [[node]]: a machine joins as one node: name one")
    return found.nodes[0] if found.nodes else this_machine(found.system)


def _host_and_port(address: str) -> tuple[str, int]:
    host, colon, port = address.rpartition(":")
    if not colon or address.endswith("]"):
        host, port = address, str(DEFAULT_PORT)
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise WrongUsage(f"{address!r}: write HOST:PORT, as given to `fairlead up --nodes`")
    return host.removeprefix("[").removesuffix("]"), int(port)
