"""Output of finished tasks, copied from their nodes to a storage."""
