"""The engine of one replica: its step loop, its batch, its HBM blocks and what stands in front of it."""
