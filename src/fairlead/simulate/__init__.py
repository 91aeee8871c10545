"""Trace-driven simulation: the live scheduler with a virtual clock, measures and reports."""
