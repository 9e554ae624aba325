"""The tests: a folder for each of the package, and what several of them need in ``support``."""
