"""The HTTP API: one file per subject; `app` assembles them."""
