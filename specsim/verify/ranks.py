"""Lengths that all ranks of a process group share.

Ranks of a tensor-parallel group that commit different lengths go on from different sequences, and
hang or diverge some steps later. They agree if each computes a length from what all of them know,
or if one sends its own to the others, after the override and not before.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import torch
import torch.distributed as dist

from specsim.acceptance import AcceptanceDistribution
from specsim.sampler import AcceptanceSampler, Coupling

Sync: TypeAlias = Literal["counter", "broadcast"]

SYNCS = ("counter", "broadcast")
SOURCE = 0
"""The rank of a group that the others follow."""


def must_be_able_to_agree(sync: str, seed: int | None) -> None:
    """Raise if ranks cannot agree in this way.

    Parameters
    ----------
    sync
        One of `SYNCS`.
    seed
        What the caller was given.

    Raises
    ------
    ValueError
        If `sync` is unknown, or if `seed` is None and `sync` is ``"counter"``.
    RuntimeError
        If `sync` is ``"broadcast"`` and torch.distributed is not initialised.
    """
    if sync not in SYNCS:
        raise ValueError(f"sync must be one of 'counter', 'broadcast', got {sync!r}")
    if sync == "counter" and seed is None:
        raise ValueError("seed must be the same integer on every rank for 'counter', got None")
    if sync == "broadcast":
        must_be_initialised()


def must_be_initialised() -> None:
    """Raise if there is no process group.

    Raises
    ------
    RuntimeError
        If torch.distributed is not initialised.
    """
    if not (dist.is_available() and dist.is_initialized()):
        raise RuntimeError(
            "torch.distributed must be initialised: call torch.distributed.init_process_group"
        )


def seed_from_torch() -> int:
    """Return a seed of 64 bits from torch's default CPU generator.

    Serving engines seed that generator alike on all ranks and draw their lengths from it, so
    that what is made of it agrees. A seed of the operating system would differ by rank.
    """
    low, high = torch.randint(1 << 32, (2,), device="cpu").tolist()
    return int(low) | int(high) << 32


def take_from_source(lengths: torch.Tensor, group: dist.ProcessGroup | None) -> None:
    """Overwrite a tensor with that of the group's rank 0; every rank must call this.

    Parameters
    ----------
    lengths : Tensor, contiguous
        Of one shape and dtype on all ranks, on a device that the group's backend sends from.
    group
        The default group if None.
    """
    group = dist.group.WORLD if group is None else group
    assert group is not None
    dist.broadcast(lengths, src=dist.get_global_rank(group, SOURCE), group=group)


class AgreedSampler:
    """Draws acceptance lengths that are the same on every rank of a group.

    ``sync="counter"`` sends nothing: a length is a pure function of the seed, the step and the
    slot (`AcceptanceSampler.at`), so ranks agree if they have the same seed and count the same
    steps. ``sync="broadcast"`` sends the lengths of the group's rank 0, so ranks agree whatever
    their seeds and steps; every rank must make every call.

    Parameters
    ----------
    distribution
        The law to draw from.
    seed
        In [0, 2⁶⁴). Required for ``"counter"``, where every rank must pass the same one; None
        takes one from the operating system.
    sync
        ``"counter"`` or ``"broadcast"``.
    coupling
        ``"batch"``: all slots share slot 0's length. ``"slot"``: `fill` draws one per slot.
    group
        Process group; the default one if None. Only ``"broadcast"`` uses it.

    Attributes
    ----------
    sampler : AcceptanceSampler
        Source of this rank's own lengths.
    sync : str

    Raises
    ------
    TypeError, ValueError
        As `AcceptanceSampler` does; ValueError if `sync` is unknown, or if `seed` is None and
        `sync` is ``"counter"``.
    RuntimeError
        If `sync` is ``"broadcast"`` and torch.distributed is not initialised.
    """

    sampler: AcceptanceSampler
    sync: Sync

    def __init__(
        self,
        distribution: AcceptanceDistribution,
        *,
        seed: int | None,
        sync: Sync,
        coupling: Coupling = "batch",
        group: dist.ProcessGroup | None = None,
    ) -> None:
        must_be_able_to_agree(sync, seed)
        self.sampler = AcceptanceSampler(distribution, seed=seed, coupling=coupling)
        self.sync = sync
        self._group = group

    def draw(self, step: int) -> int:
        """Return the length of slot 0 at a step, the same on every rank.

        Parameters
        ----------
        step
            In [0, 2⁶⁴). For ``"broadcast"`` rank 0's counts.

        Returns
        -------
        int
            An acceptance length, in 1 … max_len.

        Raises
        ------
        TypeError, ValueError
            If `step` is not an integer in [0, 2⁶⁴).
        """
        length = self.sampler.at(step, 0)
        if self.sync == "counter":
            return length
        sent = torch.tensor([length], dtype=torch.int64, device=_sending_device(self._group))
        take_from_source(sent, self._group)
        return int(sent.item())

    def fill(self, lengths: torch.Tensor, step: int | torch.Tensor) -> None:
        """Write a step's lengths into a tensor, in place; the same on every rank.

        No value is read on the host.

        Parameters
        ----------
        lengths : Tensor, shape (bs,), integer
            Written with acceptance lengths, slot i's into entry i. For ``"broadcast"`` on a
            device that the group's backend can send from, and of one dtype and batch size on
            all ranks.
        step
            In [0, 2⁶⁴), or an integer tensor of one element on the device of `lengths`. For
            ``"broadcast"`` rank 0's counts.

        Raises
        ------
        TypeError
            If `lengths` does not hold integers.
        ValueError
            If `lengths` is not one-dimensional, or `step` is out of range or on another device.
        """
        if lengths.is_floating_point() or lengths.is_complex() or lengths.dtype == torch.bool:
            raise TypeError(f"lengths must hold integers, got a tensor of {lengths.dtype}")
        if lengths.dim() != 1:
            raise ValueError(f"lengths must have shape (bs,), got {tuple(lengths.shape)}")
        slots = torch.arange(lengths.shape[0], device=lengths.device)
        lengths.copy_(self.sampler.at(step, slots))
        if self.sync == "broadcast":
            # A collective needs contiguous memory, which a view of a buffer may not be.
            sent = lengths.contiguous()
            take_from_source(sent, self._group)
            if sent is not lengths:
                lengths.copy_(sent)


def _sending_device(group: dist.ProcessGroup | None) -> torch.device:
    """Return where a tensor must be for the group's backend to send it."""
    if "nccl" in str(dist.get_backend(group)):
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")
