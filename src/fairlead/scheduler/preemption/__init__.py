"""Preemption: for claims, and so that frameworks are offered something."""
