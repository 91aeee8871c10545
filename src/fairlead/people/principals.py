"""Principals: frameworks that authenticate by name and secret, as in Mesos.

They are listed in a TOML or JSON file that only the scheduler's owner can read, one ``[[principal]]`` table each. A principal is
bound to the account that its tasks run as, and optionally to queues. A changed file is reloaded.
"""

import base64
import binascii
import hmac
import os
from collections import Counter
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field, model_validator

from fairlead.failure import failing
from fairlead.model.documents import DocumentError, Table, check_queue_name, read_table, validated
from fairlead.scheduler.admission import Refused
from fairlead.scheduler.framework_index import queue_of

Role = Annotated[str, AfterValidator(check_queue_name), AfterValidator(queue_of)]


class Principal(Table):
    """The settings of one principal.

    account : the account its tasks run as; by default the owner of a personal scheduler.
    roles : the queues it may use, with all below them; None for all that its account may submit to.
    requests : requests per second of each of its frameworks; None for its account's bound.
    """

    name: Annotated[str, Field(min_length=1, max_length=256, pattern=r"^[^:\x00-\x1f\x7f]+$")]
    secret: Annotated[str, Field(min_length=1, max_length=4096, repr=False)]
    account: Annotated[str, Field(min_length=1, max_length=128)] | None = None
    roles: Annotated[list[Role], Field(min_length=1, max_length=1000)] | None = None
    requests: Annotated[float, Field(gt=0)] | None = None


class PrincipalsDocument(Table):
    principal: Annotated[list[Principal], Field(min_length=1, max_length=10_000)]

    @model_validator(mode="after")
    def _check_names(self) -> "PrincipalsDocument":
        for name, count in Counter(each.name for each in self.principal).items():
            if count > 1:
                raise ValueError(f"{name!r} appears more than once")
        return self


class Principals:
    """All principals of a file. Raises DocumentError and Refused for an invalid file.

    personal : True if the scheduler belongs to one person; otherwise each principal must name its account
    """

    def __init__(self, path: Path, personal: bool) -> None:
        self._path, self._personal = path, personal
        self._seen: tuple[int, ...] = ()
        self._known: dict[str, Principal] = {}
        self._reload()

    def find(self, authorization: str) -> Principal | None:
        """Return the principal that a ``Basic`` ``Authorization`` header authenticates, or None."""
        scheme, _, given = authorization.partition(" ")
        if scheme.lower() != "basic":
            return None
        try:
            text = base64.b64decode(given.strip(), validate=True).decode()
        except (binascii.Error, UnicodeDecodeError):
            return None
        name, _, secret = text.partition(":")
        self._reload()
        found = self._known.get(name)
        right = hmac.compare_digest((found.secret if found is not None else "").encode(), secret.encode())
        return found if right else None

    def _reload(self) -> None:
        with failing(f"{self._path}: cannot be read: ", OSError, to=Refused):
            found = self._path.stat()
        seen = (found.st_ino, found.st_mtime_ns, found.st_ctime_ns, found.st_size)
        if seen == self._seen:
            return
        if found.st_uid not in (0, os.geteuid()) or found.st_mode & 0o077:
            raise Refused(f"{self._path}: others may read or change it: chmod 600 {self._path}, and give new secrets")
        text, raw = read_table(self._path)
        document = validated(PrincipalsDocument, self._path, text, raw)
        for each in document.principal:
            if each.account is None and not self._personal:
                raise DocumentError(f"{self._path}: principal {each.name!r}: name the account that its tasks run as")
        self._known = {each.name: each for each in document.principal}
        self._seen = seen
