"""Numbers the storages that a worker's buffers live in, by identity rather than by address."""

from __future__ import annotations

from collections import OrderedDict
from typing import TypeAlias

import torch

from specsim.trace.blocks import Storage

KEPT = 16
"""Storages that are kept alive, so that their addresses are not reused."""

_Key: TypeAlias = "tuple[int, torch.dtype]"


class StorageNumbers:
    """Gives each storage that buffers live in a small number of its own.

    An address says nothing once its storage is freed: the next one may get it. So the last
    `KEPT` distinct storages are kept referenced. Two buffers with the same number share one
    live storage; two with different numbers do not, unless more than `KEPT` others came between
    them. A storage seen as another dtype is another one.

    Attributes
    ----------
    fresh : dict of int to Storage
        Storages numbered since the caller last cleared it.
    """

    fresh: dict[int, Storage]

    def __init__(self) -> None:
        self.fresh = {}
        self._known: OrderedDict[_Key, tuple[int, torch.UntypedStorage]] = OrderedDict()
        self._next = 0
        self._last: tuple[_Key, int] | None = None

    def number(self, buffer: torch.Tensor) -> int:
        """Return the number of a buffer's storage."""
        storage = buffer.untyped_storage()
        # The address of the storage's own record: unlike `data_ptr` it is never 0, and it is
        # not reused as long as the record is referenced.
        key = (storage._cdata, buffer.dtype)
        if self._last is not None and self._last[0] == key:
            return self._last[1]
        known = self._known.get(key)
        if known is None:
            known = (self._next, storage)
            self._next += 1
            self._known[key] = known
            self.fresh[known[0]] = Storage(
                storage.nbytes(),
                buffer.element_size(),
                str(buffer.dtype).removeprefix("torch."),
                str(buffer.device),
            )
            if len(self._known) > KEPT:
                self._known.popitem(last=False)
        self._known.move_to_end(key)
        self._last = (key, known[0])
        return known[0]
