"""Modules that people have inside their models, each adopted wherever it stands."""
