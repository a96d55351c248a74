"""Who finds the groups."""
