"""How layers begin: projection weights Xavier-uniform (Glorot & Bengio 2010), biases at 0."""

from __future__ import annotations

from torch import nn


def initialise(layer: nn.Module) -> None:
    """Set every linear module of a layer to its beginning.

    >>> layer = nn.Linear(2, 3)
    >>> initialise(layer)
    >>> layer.bias.tolist()
    [0.0, 0.0, 0.0]
    """
    for module in layer.modules():
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
