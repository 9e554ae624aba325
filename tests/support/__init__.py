"""What several test modules need. Tests import from here, and never from each other."""
