"""The HTTP API: one file for what is asked about, `app` puts them together."""
