"""Where tasks run: `contract` binds every engine, `step` drives any of them, and each engine has a module or folder."""
