"""What is known of one kind of module, and how it is told, checked, changed and given back."""

from __future__ import annotations

from typing import Protocol

from torch import nn


class Part(Protocol):
    """One kind of module that can be adopted wherever it stands in a model.

    It imports the library that the module comes from only when it has met one.
    """

    @property
    def kind(self) -> str:
        """The name by which people know it."""
        ...

    @property
    def whole(self) -> bool:
        """Whether the modules inside it are its own affair, and not looked at."""
        ...

    def knows(self, module: nn.Module) -> bool:
        """Whether a module is one of them."""
        ...

    def check(self, module: nn.Module, form: str) -> None:
        """Raise if it cannot be adopted, before anything has changed."""
        ...

    def adopt(self, module: nn.Module, form: str) -> None:
        """Change a checked module in place."""
        ...

    def release(self, module: nn.Module) -> None:
        """Give back exactly what it had; a module that is not adopted is left alone."""
        ...
