"""How many cases a random test draws: a few among the other tests, and many in `make fuzz`."""

import os

FUZZ = int(os.environ.get("FAIRLEAD_FUZZ", "0"))


def cases(few: int) -> int:
    """This many; as many for each thousand of FAIRLEAD_FUZZ where that is set."""
    return few * max(1, FUZZ // 1000)
