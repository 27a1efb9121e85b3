"""The rules of the house as functions: each takes a package's folder and returns its faults."""
