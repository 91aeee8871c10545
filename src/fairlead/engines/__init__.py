"""Where tasks run: `contract` is what every engine keeps to, `step` drives any of them; each has a place of its own."""
