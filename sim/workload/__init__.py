"""What clients do: replay a trace, keep sessions or a closed loop going, send one wave; and phases of these."""
