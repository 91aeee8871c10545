"""Connections: listening, admission, the web server, and its limits."""
