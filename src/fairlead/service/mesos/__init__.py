"""Mesos' wire: frameworks connect to fairlead as they did to Mesos."""
