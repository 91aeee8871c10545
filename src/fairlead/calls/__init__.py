"""Calls of Python functions: what the client and the engines both know of them."""
