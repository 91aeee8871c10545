"""YARN's fair scheduler: queues below their minimum first, then the one with the least for its weight.

Apache Hadoop, FairSharePolicy and DominantResourceFairnessPolicy. Of two queues:

- the one below its minimum goes first; if both are, the one with the smaller fraction of its minimum;
- else the one with the smaller share over its weight.

``yarn-fair`` compares memory only. ``yarn-drf`` compares the dominant resource, and on a tie the next in descending order of
shares. Past use does not count. A queue of weight 0 goes last, unless it is below its minimum.

:mod:`fairlead.scheduler.kernel` orders live queues; :mod:`fairlead.scheduler.reports.fair_shares` computes fair shares.
"""

from fairlead.policies.contract import QueueOrder

FAIR = QueueOrder("yarn-fair", "below its minimum first, then least memory: as in YARN", has_floors=True)
"""YARN's fair policy: the least memory for its weight."""
DRF = QueueOrder("yarn-drf", "below its minimum first, then drf: as in YARN", has_floors=True)
"""YARN's DRF: the smallest dominant share, then the next share."""
