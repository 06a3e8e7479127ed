"""What things cost: passive specifications, cost functions and the catalogue of sourced figures. No clock, no state."""
