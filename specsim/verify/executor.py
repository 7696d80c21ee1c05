"""Forces the acceptance length of a verify step, in the two ways that serving engines do it."""

from __future__ import annotations

from typing import Literal, SupportsIndex, TypeAlias

import torch
import torch.distributed as dist

from specsim.acceptance import AcceptanceDistribution
from specsim.arguments import finite, integer
from specsim.sampler import AcceptanceSampler, Coupling
from specsim.verify.finalize import AcceptResult, capped, finalize, least_limit, must_not_trim
from specsim.verify.ranks import Sync, must_be_able_to_agree, seed_from_torch
from specsim.verify.refresh import MIN_CAPACITY, Device, LengthWriter, Refresh, indexed
from specsim.verify.rules import ChainVerified, GreedyVerified, Verified
from specsim.verify.tokens import TokenMode, token_to_fix

Accept: TypeAlias = Literal["greedy", "chain"]

_INTEGER_DTYPES = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


class TargetVerifyExecutor:
    """Accepts draft tokens, and overrides how many of them with a simulated length.

    A forced length reaches the step in one of two ways.

    *Cached buffer.* Each call of `_simulated_correct_len` draws, writes a cached tensor in
    place and returns a view of it; `accept_and_finalize` makes one such call. The storage stays
    the same until a larger batch, another dtype or another device needs a new one, which
    `buffer_generation` counts: a CUDA graph captured before then reads memory that nobody
    refreshes any more.

    *Step protocol.* `begin_step` draws once, into `step_correct_len`, a tensor of fixed address
    that eager and captured code both read. From its first call on, the executor draws nowhere
    else: `_simulated_correct_len` copies the step's lengths into its view and
    `accept_and_finalize` reads them, as often as they are called, until the next `begin_step`.

    With ``refresh="host"`` a draw is made on the CPU, so it must stand outside a captured
    region: capture only the step protocol's reads. With ``refresh="device"`` a draw is computed
    on the tensor's device from (seed, step counter, slot) and advances the counter there, so it
    may be captured, after one call on that device beforehand that makes its tensors.

    Parameters
    ----------
    gamma
        Draft tokens per step, at least 0.
    simulate_acc_len
        Acceptance length to force, in tokens, the target's own one included. Any finite number:
        0 or below turns simulation off, and `simulate_acc_method` says how one beyond
        gamma + 1 is taken.
    simulate_acc_method
        ``"match-expected"`` or ``"multinomial"``, see `AcceptanceDistribution.from_method`.
    token_mode
        What a forced commit holds. ``"real-draft-token"``: the draft tokens, then the target's
        token at the forced position. ``"fixed"``: `fixed_token_id` everywhere.
    fixed_token_id
        Required in fixed mode; `safe_fixed_token` finds a good one.
    refresh
        ``"host"`` or ``"device"``.
    coupling
        ``"batch"``: one draw per step for all slots. ``"slot"``: one per slot.
    seed
        In [0, 2⁶⁴). None takes one from torch's default CPU generator (with simulation off,
        nothing is taken from it), as engines draw from it: executors made under equal generators
        have equal seeds. Those of one configuration and seed force the same lengths at the same
        calls.
    sync
        What else makes ranks force the same lengths. ``"counter"``: a length is a pure function
        of (seed, step, slot) with `refresh` ``"host"`` too, and this executor counts the steps;
        nothing is sent. Ranks with one seed agree at their t-th draw in every slot that both
        have, whatever the batches, dtypes, refreshes and protocols; `step_counter` takes back
        what one rank drew alone. ``"broadcast"``: each draw is the one of the group's rank 0,
        sent after the override. Ranks agree whatever their seeds and histories, but every rank
        must make every call, and under coupling ``"slot"`` with one bs (or `step_capacity`).
    group
        Process group of ``"broadcast"``; the default one if None. Its backend has to send from
        the tensors' device.
    accept
        The real accept: ``"greedy"`` (`greedy_accept`) or ``"chain"`` (`chain_accept`).
    strict_length
        Whether a cap below a forced length raises instead of trimming. Costs a wait for the
        device at each `accept_and_finalize`.
    device
        Where `step_correct_len` lives.
    step_capacity
        Most slots of the step protocol under coupling ``"slot"``, at least 1.

    Attributes
    ----------
    distribution : AcceptanceDistribution
        Law of the forced acceptance length.
    simulating : bool
        Whether `simulate_acc_len` is above 0.
    buffer_generation : int
        How often the cached buffer was built; 0 before the first use.
    step_correct_len : Tensor, shape (1,) or (step_capacity,), int64
        The step's draft lengths, 0 … gamma: one for all slots under coupling ``"batch"``, else
        one per slot. 0 before the first `begin_step`.

    Raises
    ------
    TypeError
        If a number is not of its kind.
    ValueError
        If a number is out of range, a choice is unknown, or `fixed_token_id` or the `seed` of
        sync ``"counter"`` is missing.
    RuntimeError
        If `sync` is ``"broadcast"`` and torch.distributed is not initialised.
    """

    distribution: AcceptanceDistribution
    simulating: bool
    buffer_generation: int
    step_correct_len: torch.Tensor

    def __init__(
        self,
        gamma: SupportsIndex,
        simulate_acc_len: float,
        simulate_acc_method: str,
        *,
        token_mode: TokenMode = "real-draft-token",
        fixed_token_id: SupportsIndex | None = None,
        refresh: Refresh = "host",
        coupling: Coupling = "batch",
        seed: int | None = None,
        sync: Sync | None = None,
        group: dist.ProcessGroup | None = None,
        accept: Accept = "greedy",
        strict_length: bool = False,
        device: Device = "cpu",
        step_capacity: SupportsIndex = MIN_CAPACITY,
    ) -> None:
        if refresh not in ("host", "device"):
            raise ValueError(f"refresh must be one of 'host', 'device', got {refresh!r}")
        if accept not in ("greedy", "chain"):
            raise ValueError(f"accept must be one of 'greedy', 'chain', got {accept!r}")
        if sync is not None:
            must_be_able_to_agree(sync, seed)
        self.gamma = integer(gamma, "gamma", 0)
        self.simulate_acc_len = finite(simulate_acc_len, "simulate_acc_len")
        self.simulating = self.simulate_acc_len > 0.0
        self.distribution = AcceptanceDistribution.from_method(
            self.simulate_acc_len, simulate_acc_method, self.gamma + 1
        )
        self._fixed_token_id = token_to_fix(token_mode, fixed_token_id)
        if seed is None and self.simulating:
            seed = seed_from_torch()
        sampler = AcceptanceSampler(self.distribution, seed=seed, coupling=coupling)
        self._draw = sampler.draw
        self._writer = LengthWriter(sampler, refresh, sync, group)
        self._per_slot = coupling == "slot"
        self._accept = accept
        self._strict_length = strict_length

        self.buffer_generation = 0
        self._buffer: torch.Tensor | None = None
        self._views: dict[int, torch.Tensor] = {}
        self._dtype: torch.dtype | None = None
        self._device: torch.device | None = None

        slots = integer(step_capacity, "step_capacity", 1) if self._per_slot else 1
        with torch.inference_mode(False):
            self.step_correct_len = torch.zeros(slots, dtype=torch.int64, device=device)
        # True while a call needs one `fill_` and nothing else.
        self._fills = self.simulating and refresh == "host" and not self._per_slot and sync is None
        self._stepping = False

    def _simulated_correct_len(
        self, *, bs: int, dtype: torch.dtype, device: Device
    ) -> torch.Tensor:
        """Return this step's forced draft lengths, as a view of the cached buffer.

        Parameters
        ----------
        bs
            Slots, at least 0.
        dtype
            An integer dtype that holds gamma.
        device
            A device without an index means the current one of its type.

        Returns
        -------
        Tensor, shape (bs,)
            Values 0 … gamma, all written by this call and overwritten by the next one.

        Raises
        ------
        RuntimeError
            If simulation is off.
        TypeError
            If `bs` is not an integer, or `dtype` not an integer dtype.
        ValueError
            If `bs` is negative or `dtype` too small for gamma; in the step protocol, if `device`
            is not that of `step_correct_len` or `bs` is above its capacity.
        """
        view = self._views.get(bs)
        if view is None or dtype is not self._dtype or device != self._device:
            view = self._view(bs, dtype, device)
        if self._fills:
            return view.fill_(self._draw() - 1)
        if self._stepping:
            view.copy_(self._step_lengths(view.shape[0], view.device))
        else:
            self._writer.write(view)
        return view

    def begin_step(self) -> None:
        """Draw a step's lengths into `step_correct_len`; nothing if simulation is off."""
        if not self.simulating:
            return
        self._fills, self._stepping = False, True
        self._writer.write(self.step_correct_len)

    def step_counter(self, device: Device) -> torch.Tensor:
        """Return the counter of the draws made with refresh ``"device"`` or sync ``"counter"``.

        Whoever makes a draw that is no step, a graph runner that warms up, say, puts its value
        back.

        Parameters
        ----------
        device
            As for `_simulated_correct_len`.

        Returns
        -------
        Tensor, shape (1,), int64
            The tensor itself. With refresh ``"host"`` on the CPU, one for all devices. With
            refresh ``"device"`` on `device`: the first device counts from 0, the k-th further
            one from k · 2⁴⁸, so that no two devices force the same draws.

        Raises
        ------
        RuntimeError
            If draws are not counted.
        """
        return self._writer.step_counter(device)

    def accept_and_finalize(
        self,
        *,
        draft_tokens: torch.Tensor,
        prefix_lens: torch.Tensor,
        target_tokens: torch.Tensor | None = None,
        draft_probs: torch.Tensor | None = None,
        target_probs: torch.Tensor | None = None,
        verify_lens: torch.Tensor | None = None,
        caps: torch.Tensor | None = None,
        generator: torch.Generator | None = None,
        uniforms: torch.Tensor | None = None,
    ) -> AcceptResult:
        """Accept a step's draft tokens, force the length if simulation is on, then cap it.

        The real accept always runs, at its full cost; simulation replaces what it found. No
        value is read on the host, unless `strict_length` asks for it.

        Parameters
        ----------
        draft_tokens : Tensor, shape (bs, gamma), integer
        prefix_lens : Tensor, shape (bs,), integer
            Tokens of each sequence before the step.
        target_tokens : Tensor, shape (bs, gamma + 1), integer
            For accept ``"greedy"``: see `greedy_accept`.
        draft_probs, target_probs : Tensor, shapes (bs, gamma, V) and (bs, gamma + 1, V), floating
            For accept ``"chain"``: see `chain_accept`.
        verify_lens : Tensor, shape (bs,), integer, optional
            Tokens that were verified, the anchor token included. The draft tokens beyond were
            not, so they are neither accepted nor committed.
        caps : Tensor, shape (bs,), integer, optional
            Most tokens to commit, for another reason: the rest of a token budget, say. Both
            limits are taken as clamped to [1, gamma + 1], and both cut a forced length.
        generator, uniforms
            For accept ``"chain"``: see `chain_accept`.

        Returns
        -------
        AcceptResult
            With simulation on, `cap_trim_lens` counts what either limit took off the forced
            length, and the bonus is the target's token after the capped length: its argmax, or
            for ``"chain"`` a sample of its law there. With simulation off, `correct_len` and
            `bonus` are those of the real accept with the tighter limit as its `verify_lens`,
            and `cap_trim_lens` counts what `caps` took off its length.

        Raises
        ------
        TypeError
            If the arguments of the accept rule are missing, or of the wrong dtype.
        ValueError
            If shapes do not fit together, or a cap is below a forced length and `strict_length`
            is set.
        """
        bs = self._batch_size(
            draft_tokens, prefix_lens=prefix_lens, verify_lens=verify_lens, caps=caps
        )
        verified = self._verified(
            draft_tokens, target_tokens, draft_probs, target_probs, generator, uniforms
        )
        limit = least_limit(verify_lens, caps)
        correct_len, bonus = verified.accept(limit)
        if not self.simulating:
            uncapped = correct_len if caps is None else verified.accept(verify_lens)[0]
            return finalize(draft_tokens, correct_len, uncapped, bonus, prefix_lens)

        forced = self._forced(bs, draft_tokens.device)
        correct_len = capped(forced, limit)
        if self._strict_length:
            must_not_trim(forced, correct_len)
        bonus = verified.token_at(correct_len)
        return finalize(draft_tokens, correct_len, forced, bonus, prefix_lens, self._fixed_token_id)

    def _batch_size(self, draft_tokens: torch.Tensor, **per_request: torch.Tensor | None) -> int:
        """Return bs of arguments that fit together."""
        if draft_tokens.dim() != 2 or draft_tokens.shape[1] != self.gamma:
            raise ValueError(
                f"draft_tokens must have shape (bs, gamma) = (bs, {self.gamma}), got "
                f"{tuple(draft_tokens.shape)}"
            )
        bs = draft_tokens.shape[0]
        for name, tensor in per_request.items():
            if tensor is not None and tuple(tensor.shape) != (bs,):
                raise ValueError(f"{name} must have shape ({bs},), got {tuple(tensor.shape)}")
        return bs

    def _verified(
        self,
        draft_tokens: torch.Tensor,
        target_tokens: torch.Tensor | None,
        draft_probs: torch.Tensor | None,
        target_probs: torch.Tensor | None,
        generator: torch.Generator | None,
        uniforms: torch.Tensor | None,
    ) -> Verified:
        if self._accept == "greedy":
            if target_tokens is None:
                raise TypeError("target_tokens must be given for accept 'greedy', got None")
            return GreedyVerified(draft_tokens, target_tokens)
        if draft_probs is None or target_probs is None:
            missing = "draft_probs" if draft_probs is None else "target_probs"
            raise TypeError(f"{missing} must be given for accept 'chain', got None")
        if uniforms is None:
            uniforms = torch.rand(
                (draft_tokens.shape[0], self.gamma + 1),
                generator=generator,
                dtype=torch.float64,
                device=target_probs.device,
            )
        elif generator is not None:
            raise ValueError("generator must be None when uniforms are given")
        return ChainVerified(draft_tokens, draft_probs, target_probs, uniforms)

    def _forced(self, bs: int, device: torch.device) -> torch.Tensor:
        """Return the forced draft lengths that this step accepts; shape (bs,), int64."""
        if self._stepping:
            return self._step_lengths(bs, device)
        return self._simulated_correct_len(bs=bs, dtype=torch.int64, device=device)

    def _step_lengths(self, bs: int, device: torch.device) -> torch.Tensor:
        step = self.step_correct_len
        if device != step.device:
            raise ValueError(f"device must be {step.device} in the step protocol, got {device}")
        if not self._per_slot:
            return step.expand(bs)
        if bs > step.shape[0]:
            raise ValueError(f"bs must be at most step_capacity = {step.shape[0]}, got {bs}")
        return step[:bs]

    def _view(self, bs: int, dtype: torch.dtype, device: Device) -> torch.Tensor:
        """Return the buffer's first `bs` slots, of a new buffer if the present one won't do."""
        if not self.simulating:
            raise RuntimeError(
                f"simulation is off: simulate_acc_len must be above 0, got {self.simulate_acc_len}"
            )
        size, place = integer(bs, "bs", 0), indexed(device)
        # Everything that can be refused is refused before the present buffer is given up.
        if dtype not in _INTEGER_DTYPES:
            raise TypeError(f"dtype must be an integer dtype, got {dtype}")
        if self.gamma > torch.iinfo(dtype).max:
            raise ValueError(f"dtype must hold gamma = {self.gamma}, got {dtype}")
        if self._stepping:
            self._step_lengths(size, place)
        buffer = self._buffer
        # A tensor made in inference mode could not be written outside of it.
        with torch.inference_mode(False):
            if (
                buffer is None
                or buffer.shape[0] < size
                or dtype is not self._dtype
                or place != self._device
            ):
                buffer = torch.zeros(max(size, MIN_CAPACITY), dtype=dtype, device=place)
                self._buffer, self._dtype, self._device = buffer, dtype, buffer.device
                self._views = {}
                self.buffer_generation += 1
            if size not in self._views:
                self._views[size] = buffer[:size]
        return self._views[size]
