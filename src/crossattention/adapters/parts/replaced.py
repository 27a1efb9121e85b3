"""Give one module another forward, and take it back: its class, weights and hooks stay.

The new forward is an attribute of the instance: a copy and a pickle of the module have one of their
own, and when it is deleted the class answers again.
"""

from __future__ import annotations

import inspect
from typing import Any

from torch import nn

from crossattention.errors import ContractError, complaint


class Replaced:
    """The forward of one module; subclasses say what it computes, by `__call__`.

    Args:
        module: whose forward this is.
        form: "auto", "projected" or "raw".

    >>> layer = nn.Identity()
    >>> Replaced(layer, "auto").stock(3)
    3
    """

    def __init__(self, module: nn.Module, form: str) -> None:
        self.module = module
        self.form = form

    def stock(self, *given: Any) -> Any:
        """Call the forward of the module's class."""
        return type(self.module).forward(self.module, *given)


class Replacing:
    """A part that gives its modules another forward, `answers`, and takes it back.

    >>> layer = nn.Identity()
    >>> Replacing().adopt(layer, "auto")
    >>> Replacing().release(layer)
    >>> is_replaced(layer)
    False
    """

    answers: type[Replaced] = Replaced
    whole = True

    def adopt(self, module: nn.Module, form: str) -> None:
        """Replace a checked module's forward."""
        replace(self.answers(module, form))

    def release(self, module: nn.Module) -> None:
        """Let the class answer again."""
        restore(module)


def check_replaceable(module: nn.Module) -> None:
    """Check that nothing else has replaced a module's forward.

    >>> check_replaceable(nn.Identity())
    """
    if "forward" in vars(module):
        kind, do = type(module).__name__, "adopt the model before whatever wraps it"
        given = f"a {kind} whose forward is wrapped"
        if is_replaced(module):
            given, do = f"a {kind} that is adopted already", "release it first"
        raise ContractError(complaint("module", "as its class defines it", given, do))


def replace(forward: Replaced) -> None:
    """Let `forward` answer calls of its module.

    >>> layer = nn.Identity()
    >>> replace(Replaced(layer, "auto"))
    >>> is_replaced(layer)
    True
    """
    check_replaceable(forward.module)
    vars(forward.module)["forward"] = forward  # found before that of the class


def restore(module: nn.Module) -> None:
    """Let the class answer again.

    >>> layer = nn.Identity()
    >>> replace(Replaced(layer, "auto"))
    >>> restore(layer)
    >>> "forward" in vars(layer)
    False
    """
    if is_replaced(module):
        del module.forward


def is_replaced(module: nn.Module) -> bool:
    """Whether `replace` has given the module its forward.

    >>> is_replaced(nn.Identity())
    False
    """
    return isinstance(vars(module).get("forward"), Replaced)


def check_takes(kind: type[nn.Module], names: tuple[str, ...]) -> None:
    """Check that a class's forward still takes what it took when this was written.

    Args:
        kind: the class.
        names: of the parameters behind `self`; `*` and `**` ones do not count.
    Raises:
        ContractError: they are others.

    >>> check_takes(nn.Linear, ("input",))
    """
    found = tuple(
        each.name
        for each in list(inspect.signature(kind.forward).parameters.values())[1:]
        if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
    )
    if found != names:
        want = f"of a class whose forward takes {', '.join(names)}"
        given = f"a {kind.__module__}.{kind.__qualname__} that takes {', '.join(found)}"
        do = "use a version of its package that this one was tested with"
        raise ContractError(complaint("module", want, given, do))
