"""What happens when: the simulated clock, engine, tiers, transfers, policies, workload and result."""
