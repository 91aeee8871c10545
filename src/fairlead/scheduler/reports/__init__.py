"""Reports: they read the state; nothing they read imports them."""
