"""Mesos' v1 messages, as far as they are read or told here: ``make messages`` makes the Python of the ``.proto`` files."""
