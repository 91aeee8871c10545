"""How many cases a random test draws: a few among the other tests, and many in `make fuzz`."""

import os

FUZZ = int(os.environ.get("FAIRLEAD_FUZZ", "0"))


def is_tried(number: int) -> bool:
    """Whether a recovered state makes this decision of a story too: the first 10 and each 20th, and all in `make fuzz`."""
    return number <= 10 or number % 20 == 0 or FUZZ > 0


def cases(few: int) -> int:
    """This many; as many for each thousand of FAIRLEAD_FUZZ where that is set."""
    return few * max(1, FUZZ // 1000)
