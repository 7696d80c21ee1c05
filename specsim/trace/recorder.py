"""The hook that a live worker calls once a step."""

from __future__ import annotations

import atexit
import os
import platform
import time
import warnings
import weakref
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, SupportsIndex, TypeAlias

import numpy as np
import torch

from specsim._version import __version__
from specsim.arguments import integer
from specsim.trace.blocks import FIELDS, NO_STORAGE, Block
from specsim.trace.frames import END, HEADER, MAGIC, STEPS, SUFFIX, frame
from specsim.trace.header import TraceConfiguration, TraceHeader, end_payload
from specsim.trace.rows import Row, columns_of
from specsim.trace.staging import DeviceCopies, Event
from specsim.trace.storages import StorageNumbers

Lengths: TypeAlias = "torch.Tensor | np.ndarray[Any, Any] | Sequence[int] | int"
"""One integer a slot, or one for all slots of the batch."""

BLOCK_STEPS = 256
"""Most steps held in memory before they are written."""

WAITING_STEPS = 64
"""Most steps that may wait for the device."""

_BLOCK_BYTES = 1 << 20
# What a killed process loses is at most this old, if steps keep coming.
_BLOCK_SECONDS = 1.0

_LIVE: weakref.WeakSet[Recorder] = weakref.WeakSet()


def record(
    path: str | os.PathLike[str],
    *,
    gamma: SupportsIndex,
    simulate_acc_len: float | None = None,
    simulate_acc_method: str = "match-expected",
    rates: Iterable[float] | None = None,
    coupling: str = "batch",
    token_mode: str | None = None,
    fixed_token_id: int | None = None,
    rank: SupportsIndex | None = None,
    sync: bool = False,
    block_steps: SupportsIndex = BLOCK_STEPS,
) -> Recorder:
    """Record the steps of a live worker, for ``specsim check --trace``.

    Parameters
    ----------
    path
        A folder for one run; made if it is missing. Each process appends to a file of its own
        there. The processes of one run are the ranks that verify the same batch: give every
        data-parallel replica a folder of its own.
    gamma
        Draft tokens per step, at least 0.
    simulate_acc_len
        Acceptance length that is forced, in tokens, the target's own one included; if it is None,
        or 0 or below, the law of the lengths is not judged.
    simulate_acc_method
        ``"match-expected"`` or ``"multinomial"``.
    rates
        Unconditional per-position acceptance rates, gamma of them, in place of a length.
    coupling
        ``"batch"``: one draw per step for all slots. ``"slot"``: one per slot.
    token_mode, fixed_token_id
        ``"real-draft-token"``, or ``"fixed"`` and the token; for recorded tokens.
    rank
        This process's rank; by default that of `torch.distributed` when the first step is
        recorded, 0 without it.
    sync
        Whether a step waits for the device to have its values. By default none ever does, and a
        step is dropped, and counted, if 64 earlier ones still wait for the device.
    block_steps
        Most steps held in memory; a killed process loses them. They are written sooner if a step
        comes more than a second after the first of them.

    Returns
    -------
    Recorder
        Call its `step` once a verify step, and its `close` at the end, or use it in a ``with``
        statement. A process that exits in order closes it by itself.

    Raises
    ------
    TypeError, ValueError
        If an argument is not of its kind, out of range or unknown.
    OSError
        If the folder cannot be made.
    """
    configuration = TraceConfiguration(
        integer(gamma, "gamma", 0),
        None if simulate_acc_len is None else float(simulate_acc_len),
        simulate_acc_method,
        None if rates is None else tuple(float(rate) for rate in rates),
        coupling,
        token_mode,
        fixed_token_id,
    )
    number = None if rank is None else integer(rank, "rank", 0)
    return Recorder(path, configuration, number, sync, integer(block_steps, "block_steps", 1))


class Recorder:
    """Appends a worker's steps to a file; made by `record`.

    One thread calls it. In a forked child it forgets the parent's steps and file, and begins a
    file of its own with the child's first step. If the file can't be written, the recording ends
    with a `RuntimeWarning`; the worker goes on.

    Attributes
    ----------
    folder : Path
        Where the file is.
    file : Path or None
        This process's file; None before its first step.
    steps : int
        Calls of `step` in this process.
    dropped : int
        How many of them were not recorded, as too many others waited for the device.
    """

    folder: Path
    file: Path | None
    steps: int
    dropped: int

    def __init__(
        self,
        path: str | os.PathLike[str],
        configuration: TraceConfiguration,
        rank: int | None = None,
        sync: bool = False,
        block_steps: int = BLOCK_STEPS,
    ) -> None:
        # Absolute: a worker may change its directory before its first step.
        self.folder = Path(path).absolute()
        self.folder.mkdir(parents=True, exist_ok=True)
        self._configuration = configuration
        self._rank = rank
        self._sync = sync
        self._block_steps = block_steps
        self._ended = False
        self._begin()
        _LIVE.add(self)
        atexit.register(self.close)

    def _begin(self) -> None:
        self.file = None
        self.steps = self.dropped = 0
        self._descriptor: int | None = None
        self._storages = StorageNumbers()
        self._device: torch.device | None = None
        self._copies: DeviceCopies | None = None
        self._rows: list[Row] = []
        self._bytes = 0
        self._oldest = 0.0

    def step(
        self,
        *,
        correct_len: Lengths | None = None,
        commit_lens: Lengths | None = None,
        cap_trim_lens: Lengths | None = None,
        caps: Lengths | None = None,
        prefix_lens: Lengths | None = None,
        new_seq_lens: Lengths | None = None,
        out_tokens: Lengths | None = None,
        draft_tokens: Lengths | None = None,
        target_tokens: Lengths | None = None,
        buffer: torch.Tensor | None = None,
        graph: bool = False,
    ) -> None:
        """Record one verify step, after its work has been queued.

        Give what the worker has: each property is judged on the steps that hold what it needs.
        Values are copied before this returns, or in the device's order of work.

        Parameters
        ----------
        correct_len
            Shape (bs,), or (1,) for all slots: draft tokens that the step accepts, 0 … gamma,
            before or after any cap, but the same throughout.
        commit_lens
            Shape (bs,): tokens that the step commits, after any cap.
        cap_trim_lens
            Shape (bs,): tokens that a cap took off.
        caps
            Shape (bs,): most tokens to commit; needed if `cap_trim_lens` is not given and caps
            can be below gamma + 1.
        prefix_lens, new_seq_lens
            Shape (bs,): tokens of each sequence before and after the step.
        out_tokens
            Shape (bs, gamma + 1): the committed tokens; the rest of a row may be anything.
        draft_tokens
            Shape (bs, gamma).
        target_tokens
            Shape (bs, gamma + 1): the target's own token at each position.
        buffer
            The tensor that the step reads its lengths from; its storage is recorded, not its
            values. At a graph step, the one that the graph was captured with.
        graph
            Whether the step was replayed from a graph. This call itself stands outside of it.

        Raises
        ------
        TypeError
            If a value does not hold integers, or `buffer` is no tensor.
        ValueError
            If a tensor is on a device that only ``sync=True`` can copy from.
        RuntimeError
            If the call is captured into a CUDA graph.
        """
        if self._ended:
            return
        if buffer is None:
            row = Row((self.steps, graph, NO_STORAGE, 0), [], [])
        else:
            row = Row((self.steps, graph, *self._located(buffer)), [], [])
        on_device: list[tuple[str, torch.Tensor]] = []
        values = (
            *(correct_len, commit_lens, cap_trim_lens, caps, prefix_lens, new_seq_lens),
            *(out_tokens, draft_tokens, target_tokens),
        )
        for name, value in zip(FIELDS, values, strict=True):
            if value is None:
                continue
            if not isinstance(value, torch.Tensor):
                row.add(name, np.asarray(value))
            elif value.is_cpu:
                row.add(name, value.numpy())
            elif self._sync:
                row.add(name, value.cpu().numpy())
            else:
                on_device.append((name, self._checked(name, value)))
        if self._descriptor is None:
            self._open_file()
        self.steps += 1
        if self._copies is None:
            self._keep(row)
        else:
            self._keep_in_turn(self._copies, row, on_device)
        if self._rows and (
            len(self._rows) >= self._block_steps
            or self._bytes >= _BLOCK_BYTES
            or time.monotonic() - self._oldest >= _BLOCK_SECONDS
        ):
            self._write_block()

    def _checked(self, name: str, tensor: torch.Tensor) -> torch.Tensor:
        """Return a device tensor that can be copied without waiting."""
        if tensor.dtype.is_floating_point or tensor.dtype.is_complex or tensor.dtype is torch.bool:
            raise TypeError(f"{name} must hold integers, got dtype {tensor.dtype}")
        device = tensor.device
        if device != self._device:
            if device.type != "cuda" or self._device is not None:
                expected = "a CUDA device" if self._device is None else str(self._device)
                raise ValueError(f"{name} must be on the CPU or {expected}, got {device}")
            self._device = device
            self._copies = DeviceCopies(WAITING_STEPS, lambda: _CudaEvent(device))
        if torch.cuda.is_current_stream_capturing():
            raise RuntimeError("step must be called outside of the region that a graph captures")
        return tensor

    def _located(self, buffer: torch.Tensor) -> tuple[int, int]:
        """Return the number of a buffer's storage, and where in it the buffer begins."""
        if not isinstance(buffer, torch.Tensor):
            raise TypeError(f"buffer must be a torch.Tensor, got {type(buffer).__name__}")
        return self._storages.number(buffer), int(buffer.storage_offset())

    def _keep_in_turn(
        self, copies: DeviceCopies, row: Row, on_device: list[tuple[str, torch.Tensor]]
    ) -> None:
        """Keep a step behind those that wait for the device, and take out those that need not."""
        for done in copies.done():
            self._keep(done)
        if not on_device and not len(copies):
            self._keep(row)
        elif not copies.put(row, on_device):
            self.dropped += 1

    def _keep(self, row: Row) -> None:
        if not self._rows:
            self._oldest = time.monotonic()
        self._rows.append(row)
        self._bytes += sum(map(len, row.contents))

    def close(self) -> None:
        """Write what is still in memory, and close the file; nothing if that was done."""
        if self._ended:
            return
        if self._copies is not None:
            self._finish_copies(self._copies)
        if self._rows:
            self._write_block()
        if self._descriptor is not None:
            self._write(END, end_payload(self.steps, self.dropped))
        self._end()

    def _finish_copies(self, copies: DeviceCopies) -> None:
        waiting = len(copies)
        try:
            for done in copies.done(wait=True):
                self._keep(done)
                waiting -= 1
        except RuntimeError:
            # A device that failed has nothing more to say, and its error belongs to the worker.
            self.dropped += waiting

    def _end(self) -> None:
        self._ended = True
        atexit.unregister(self.close)
        _LIVE.discard(self)
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
        self._rows, self._copies = [], None

    def _forked(self) -> None:
        """Leave the parent its steps and its file."""
        if self._descriptor is not None:
            os.close(self._descriptor)
        self._begin()

    def _write_block(self) -> None:
        rows, self._rows, self._bytes = self._rows, [], 0
        fresh, self._storages.fresh = self._storages.fresh, {}
        heads = np.array([row.head for row in rows], dtype=np.int64)
        block = Block(
            steps=heads[:, 0],
            graph=heads[:, 1] != 0,
            storage=heads[:, 2],
            offset=heads[:, 3],
            columns=columns_of(rows),
            storages=fresh,
            dropped=self.dropped,
            time=time.time(),
        )
        self._write(STEPS, block.to_bytes())

    def _write(self, tag: bytes, payload: bytes) -> None:
        if self._descriptor is None:
            return
        try:
            _write_all(self._descriptor, frame(tag, payload))
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        """End the recording, but not the worker."""
        self._end()
        warnings.warn(
            f"no more steps are recorded: {self.file} cannot be written: {error.strerror}",
            RuntimeWarning,
            stacklevel=5,
        )

    def _open_file(self) -> None:
        rank = _own_rank() if self._rank is None else self._rank
        now, pid = time.time_ns(), os.getpid()
        self.file = self.folder / f"rank{rank:04d}-{now}-{pid}{SUFFIX}"
        versions = {
            "specsim": __version__,
            "python": platform.python_version(),
            "numpy": np.__version__,
            "torch": torch.__version__,
        }
        header = TraceHeader(rank, pid, now / 1e9, self._configuration, versions)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL
        try:
            self._descriptor = os.open(self.file, flags, 0o644)
            _write_all(self._descriptor, MAGIC + frame(HEADER, header.to_bytes()))
        except OSError as error:
            self._give_up(error)

    def __enter__(self) -> Recorder:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


class _CudaEvent(Event):
    """An event on whatever stream of a device is current when it is recorded."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._event = torch.cuda.Event()  # type: ignore[no-untyped-call]

    def record(self) -> None:
        self._event.record(torch.cuda.current_stream(self._device))

    def query(self) -> bool:
        return bool(self._event.query())  # type: ignore[no-untyped-call]

    def synchronize(self) -> None:
        self._event.synchronize()


def _own_rank() -> int:
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank()
    return 0


def _write_all(descriptor: int, content: bytes) -> None:
    """Write all of a frame, in one call where the system takes it."""
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]


def _forget_in_child() -> None:
    for recorder in list(_LIVE):
        recorder._forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_in_child)
