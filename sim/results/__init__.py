"""From what a run recorded to summary, tables, plots and files."""
