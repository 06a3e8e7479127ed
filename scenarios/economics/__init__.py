"""What a scenario costs to run: money, energy, wear. Applies the laws of `models.economics` to a run; changes nothing."""
