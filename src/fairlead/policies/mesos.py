"""Mesos' DRF: by dominant share over weight, then by number of allocations, then by name.

Source: Mesos' DRF sorter. Past use does not count. A guarantee is a Mesos quota: kept for its owner even while unused, unless
`lend` is set. Inner queues that name no policy inherit it.
"""

from fairlead.policies.contract import QueueOrder

POLICY = QueueOrder("mesos", "drf, ties by how often each was served: as in Mesos")
"""Mesos' DRF among queues. It differs from drf only in ties and in guarantees kept for idle queues."""
