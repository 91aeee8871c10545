"""Real traces through the real scheduler: workloads in, the state machine with a virtual clock, measures and reports out."""
