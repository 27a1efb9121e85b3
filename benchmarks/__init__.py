"""Measure this library beside what its users would take instead: one file a question."""
