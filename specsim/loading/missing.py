"""Stands in for what an extracted function needs and cannot have here.

Standard library only.
"""

from __future__ import annotations

from typing import NoReturn

from specsim.loading.failures import TargetError


class MissingNameError(TargetError):
    """A name of an extracted file is used whose value could not be had.

    Attributes
    ----------
    reason : str
        Why there is no value.
    """

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"{reason}; pass --namespace {name}=…")
        self.reason = reason


class MissingAttributeError(TargetError, AttributeError):
    """A method taken out of its class reads an attribute that was not given.

    It is an `AttributeError` too, so that ``hasattr`` and ``getattr`` with a default work.
    """


class MissingName:
    """Raises `MissingNameError` at any use but being passed on, compared by ``is`` or printed.

    Parameters
    ----------
    name
        The name it stands for.
    reason
        Why there is no value.
    """

    __slots__ = ("_specsim_name", "_specsim_reason")

    def __init__(self, name: str, reason: str) -> None:
        object.__setattr__(self, "_specsim_name", name)
        object.__setattr__(self, "_specsim_reason", reason)

    def __repr__(self) -> str:
        return f"<missing {object.__getattribute__(self, '_specsim_name')}>"

    def __getattr__(self, attribute: str) -> NoReturn:
        refuse(self)


def refuse(missing: MissingName, *args: object, **kwargs: object) -> NoReturn:
    """Raise the error of a missing name, whatever was to be done with it."""
    raise MissingNameError(
        object.__getattribute__(missing, "_specsim_name"),
        object.__getattribute__(missing, "_specsim_reason"),
    )


_BINARY = "add sub mul matmul truediv floordiv mod divmod pow lshift rshift and xor or"
_SPECIAL = (
    "call bool len iter next contains getitem setitem delitem setattr delattr hash index int "
    "float complex round trunc floor ceil neg pos abs invert eq ne lt le gt ge enter exit aenter "
    "aexit await aiter anext instancecheck subclasscheck mro_entries "
) + " ".join(f"{name} r{name} i{name}" for name in _BINARY.split())

# Python looks special methods up on the class, where __getattr__ does not reach.
for _name in _SPECIAL.split():
    setattr(MissingName, f"__{_name}__", refuse)
