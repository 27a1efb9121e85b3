"""Tell a module's kind by the name of its class, so that no library is imported to ask.

A class is told by the module that defines it and by its own name; one that inherits a listed class
and its forward is of that kind, too.
"""

from __future__ import annotations

from torch import nn

from crossattention.adapters.parts.replaced import check_takes

Named = tuple[str, str, tuple[str, ...]]  # module, class, and what its forward takes


def kind_of(module: nn.Module, kinds: tuple[Named, ...]) -> tuple[type[nn.Module], Named] | None:
    """Find the listed class whose forward answers a module's calls.

    >>> kind_of(nn.Linear(2, 2), (("torch.nn.modules.linear", "Linear", ("input",)),))[1][1]
    'Linear'
    """
    for base in type(module).__mro__:
        for named in kinds:
            if (base.__module__, base.__qualname__) == named[:2]:
                stock = vars(base).get("forward")
                return (base, named) if type(module).forward is stock else None
    return None


def check_kind(module: nn.Module, kinds: tuple[Named, ...]) -> None:
    """Check that the class of a module takes what is listed.

    >>> check_kind(nn.Linear(2, 2), (("torch.nn.modules.linear", "Linear", ("input",)),))
    """
    found = kind_of(module, kinds)
    if found is not None:
        check_takes(found[0], found[1][2])
