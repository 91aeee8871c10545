"""The compiled part of the scheduler: one extension module, `scheduling`, made of the `.pxi` files here.

The source is Cython in `.pyx` syntax. Kernels read and write C structs through typed pointers, ``v.queues[q].parent``,
and one translation unit lets the C compiler inline across files; Cython's pure-Python mode offers neither. The structs
and constants are generated from the Python declarations that the rest of fairlead uses (see `declarations`), so each is
written once.
"""
