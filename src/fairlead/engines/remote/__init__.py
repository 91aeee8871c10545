"""Tasks on many machines: a supervisor on each, and a connection to each, all in one thread."""
