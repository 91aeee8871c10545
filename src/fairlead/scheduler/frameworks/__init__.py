"""Frameworks: what they request and are offered, as in Mesos."""
