"""The page: the scheduler in a browser."""
