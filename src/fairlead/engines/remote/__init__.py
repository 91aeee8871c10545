"""Tasks on many machines: a supervisor on each, and one line to each of them, all in one thread."""
