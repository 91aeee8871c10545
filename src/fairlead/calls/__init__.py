"""What the client and the engines both know of Python calls."""
