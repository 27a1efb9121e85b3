"""One exact evaluation per file; none imports another."""
