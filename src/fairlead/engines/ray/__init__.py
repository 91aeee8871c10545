"""A Ray cluster as the machines: Ray says which there are and starts a supervisor on each; the rest is the engine of many."""
