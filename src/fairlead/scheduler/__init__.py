"""The state machine: facts in, decisions out. No I/O, no clock, no threads.

`facts` says what can happen; `state` is what follows from the facts so far; `decide` looks at the state and returns new
facts; `admission` turns what people ask for into facts, or refuses. The `kernel_*` files are the numeric heart, over the
arrays of `tables` (the state) and of `view` (the order that is kept beside it).
"""
