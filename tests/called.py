"""What is called in other processes by tests of executors; each of these reads this file, so it imports next to nothing."""

import time


def square(x):
    return x * x


def nap(seconds, value=None):
    time.sleep(seconds)
    return value


def fail(text):
    raise LookupError(text)


def until_it_is_there(file):
    while not file.exists():
        time.sleep(0.05)


class Counted:
    """Counts how often it is pickled here."""

    times = 0

    def __reduce__(self):
        Counted.times += 1
        return Counted, ()


def with_first(shared, number):
    return type(shared).__name__, number
