"""Access tokens for callers on other machines. A token is shown once, when created; only its hash is stored.

A token is ``fairlead_ID_SECRET``. The secret has 256 random bits, so a plain SHA-256 suffices: it cannot be guessed. A token is
bound to an account by name and uid, so an account recreated under an old name does not inherit it.
"""

import hashlib
import hmac
import os
import secrets
import threading
import time
from pathlib import Path

import msgspec

from fairlead.data_folder import NotPlain, open_plain, write_private
from fairlead.people.accounts import Person
from fairlead.people.rules import Forbidden
from fairlead.scheduler.admission import Refused, Unknown

PREFIX = "fairlead"
MOST_OF_ONE = 100
"""Tokens of one person."""


class Token(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is stored of a token.

    expires : seconds since the epoch; None for never.
    queues : the queues it covers, with all below them; None for all.
    """

    id: str
    user: str
    uid: int
    hash: str
    created: float
    expires: float | None = None
    queues: list[str] | None = None
    read_only: bool = False

    def holds(self, now: float) -> bool:
        return self.expires is None or self.expires > now


class Tokens:
    """All tokens of a scheduler, in a file of its folder. Thread-safe.

    Raises Refused if the file is damaged or others could have changed it.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._lock = path, threading.Lock()
        try:
            with open_plain(path, os.geteuid()) as file:
                if os.fstat(file.fileno()).st_mode & 0o022:
                    raise Refused(f"{path}: others may write to it: check who did, or move it away and create new tokens")
                kept = msgspec.json.decode(file.read(), type=list[Token])
        except FileNotFoundError:
            kept = []
        except NotPlain as error:
            raise Refused(f"{error}: move it away") from None
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise Refused(f"{path}: not a scheduler's token file ({error}): restore a copy, or move it away") from None
        self._tokens = {token.id: token for token in kept}

    def new(
        self, person: Person, *, seconds: float | None = None, queues: list[str] | None = None, read_only: bool = False
    ) -> tuple[Token, str]:
        """Create a token for a person, valid for `seconds`. Return what is stored and the token itself."""
        secret, now = secrets.token_urlsafe(32), time.time()
        with self._lock:
            alive = [token for token in self._tokens.values() if token.holds(now)]
            if sum(token.uid == person.uid for token in alive) >= MOST_OF_ONE:
                raise Refused(f"{person.name} already has {MOST_OF_ONE} tokens: revoke one first")
            token = Token(
                id=secrets.token_hex(6), user=person.name, uid=person.uid, hash=hash_of(secret), created=now,
                expires=None if seconds is None else now + seconds, queues=queues, read_only=read_only,
            )  # fmt: skip
            self._write([*alive, token])
        return token, f"{PREFIX}_{token.id}_{secret}"

    def find(self, written: str) -> Token | None:
        """Return the token that a caller sent; None if it is invalid, revoked or expired."""
        prefix, _, rest = written.partition("_")
        number, _, secret = rest.partition("_")
        token = self._tokens.get(number)
        if prefix != PREFIX or token is None or not hmac.compare_digest(hash_of(secret), token.hash):
            return None
        return token if self.is_good(number) else None

    def is_good(self, number: str) -> bool:
        """True if the token with this id exists and has not expired."""
        token = self._tokens.get(number)
        return token is not None and token.holds(time.time())

    def all(self) -> list[Token]:
        return sorted(self._tokens.values(), key=lambda token: (token.created, token.id))

    def revoke(self, number: str, of: Person | None) -> Token:
        """Revoke a token. Raises Unknown, and Forbidden if `of` is given and the token is not theirs."""
        with self._lock:
            token = self._tokens.get(number)
            if token is None:
                raise Unknown(f"no token {number}: `fairlead token list` shows the existing ones")
            if of is not None and token.uid != of.uid:
                raise Forbidden(f"token {number} is another person's: only they and root may revoke it")
            self._write([each for each in self._tokens.values() if each.id != number])
        return token

    def _write(self, tokens: list[Token]) -> None:
        write_private(self._path, msgspec.json.encode(tokens).decode() + "\n", durable=True)
        self._tokens = {token.id: token for token in tokens}


def hash_of(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
