"""Clients of a running scheduler. Imports neither numpy nor the server."""
