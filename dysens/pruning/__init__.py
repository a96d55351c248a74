"""What to remove, removing it, undoing it, and proving that it was right."""
