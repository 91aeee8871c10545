"""What is shared and by whom: quantities, nodes, the queue tree, jobs. Plain data, validated at the edge."""
