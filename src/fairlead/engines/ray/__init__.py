"""A Ray cluster as an engine: Ray provides the nodes and starts a supervisor on each; the rest is the remote engine."""
