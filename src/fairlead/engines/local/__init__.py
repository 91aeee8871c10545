"""Tasks as processes of this machine, under a supervisor process that outlives the scheduler."""
