"""The live scheduler: the loop between journal, state machine and engine, and the HTTP API around it."""
