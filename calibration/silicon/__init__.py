"""GPU step times: efficiencies fitted to serving measurements without tiers, tested on GPUs that were not fitted."""
