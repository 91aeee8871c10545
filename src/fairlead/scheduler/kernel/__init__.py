"""All of the scheduler that is compiled: one extension module, `scheduling`, put together from the `.pxi` files beside it.

The source is Cython in `.pyx` syntax. What a kernel reads and writes are C structs behind typed pointers, ``v.queues[q].parent``,
and one translation unit lets the C compiler inline across the files; Cython's pure-Python mode has neither. The structs and the
constants are generated from the Python declarations that the rest of fairlead uses (see `declarations`), so each is written once.
"""
