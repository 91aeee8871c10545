"""The data model: quantities, nodes, the queue tree, jobs. Plain data, validated where it enters."""
