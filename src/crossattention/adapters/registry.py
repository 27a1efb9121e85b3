"""The adopters, in the order in which they are asked whether they know a model.

None imports the library of its models before it is called: a model that is asked about has already
brought its library along.
"""

from __future__ import annotations

from crossattention.adapters.contract import Adopter
from crossattention.adapters.hugging_face.adopter import HuggingFace
from crossattention.adapters.parts.adopter import Parts

ADOPTERS: tuple[Adopter, ...] = (HuggingFace(), Parts())
