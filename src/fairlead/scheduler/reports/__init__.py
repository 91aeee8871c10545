"""Reports: they read the state, and nothing that they read knows them."""
