"""Records what a block of code dispatches to ATen: every operation, and those that allocate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

HOST_READS = frozenset(
    f"aten::{name}"
    for name in ("_local_scalar_dense", "item", "equal", "is_nonzero", "nonzero", "masked_select")
)
"""What waits for a value on the host, or makes a shape depend on one."""


class Dispatched(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Names of the operations run in the block, and of those that returned new memory."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names: list[str] = []
        self.allocating: list[str] = []

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        name = str(func._schema.name)
        self.names.append(name)
        given = {storage_of(tensor) for tensor in _tensors((args, kwargs))}
        if any(storage_of(tensor) not in given for tensor in _tensors(result)):
            self.allocating.append(name)
        return result


def storage_of(tensor: torch.Tensor) -> int:
    """Return a number that two live tensors share if and only if they share memory."""
    return int(tensor.untyped_storage()._cdata)


def _tensors(tree: Any) -> list[torch.Tensor]:
    return [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, torch.Tensor)]
