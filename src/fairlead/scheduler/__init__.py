"""The state machine: facts in, decisions out. No I/O, no clock, no threads.

`facts` defines what can happen, `state` is what follows from the facts so far, and `decide` returns new facts for a state.
`admission` turns requests into facts, or refuses them. `kernel/` is the compiled part, over the arrays of `tables` (the state)
and of `kernel/view` (the order, a cache).
"""
