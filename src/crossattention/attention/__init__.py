"""The one verb: check, choose, run; and its siblings that merge and explain."""
