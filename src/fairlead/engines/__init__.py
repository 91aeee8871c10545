"""Where tasks run: `contract` is what every engine keeps to, and each engine has a folder of its own."""
