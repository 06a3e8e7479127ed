"""What happens to a cluster during a run: parts that are lost and come back, replicas that restart, come and go."""
