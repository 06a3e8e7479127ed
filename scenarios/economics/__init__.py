"""What a scenario costs to run: money, energy, wear. The laws of `models.economics`, applied to a run."""
