"""Transfers as flows over shared links, and the chunk-by-chunk mode that checks them."""
