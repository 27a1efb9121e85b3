"""Other people's models, reading their memories by this library."""

from crossattention.adapters.adopt import adopt, adopted, explain_model, release

__all__ = ["adopt", "adopted", "explain_model", "release"]
