"""What was measured: tables of published results that simulations are held against."""
