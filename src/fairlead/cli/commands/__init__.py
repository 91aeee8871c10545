"""The commands, grouped by subject. Each function declares the options of one command and calls the code that runs it.

Heavy modules are imported inside the functions, so that a client command starts quickly.
"""
