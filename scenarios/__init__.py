"""What is asked: scenario files and their schema, the loader, and the `kvtier` command."""
