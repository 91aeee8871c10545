"""What frameworks ask for and are offered: Mesos' side of the state machine."""
