"""Reference code that uses a forced acceptance length: accept rules, and what builds on them.

Names are looked up when they are used, so that ``import specsim.verify`` does not load torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from specsim.lazy import lazy_names

if TYPE_CHECKING:
    from specsim.verify.accept import (
        chain_accept,
        counter_uniforms,
        greedy_accept,
        probabilities,
    )
    from specsim.verify.dflash import apply_dflash_simulated_acceptance
    from specsim.verify.eagle import generate_simulated_accept_index
    from specsim.verify.executor import TargetVerifyExecutor
    from specsim.verify.finalize import AcceptResult
    from specsim.verify.tokens import safe_fixed_token

__all__ = [
    "AcceptResult",
    "TargetVerifyExecutor",
    "apply_dflash_simulated_acceptance",
    "chain_accept",
    "counter_uniforms",
    "generate_simulated_accept_index",
    "greedy_accept",
    "probabilities",
    "safe_fixed_token",
]

_HOMES = {
    "AcceptResult": "specsim.verify.finalize",
    "TargetVerifyExecutor": "specsim.verify.executor",
    "apply_dflash_simulated_acceptance": "specsim.verify.dflash",
    "chain_accept": "specsim.verify.accept",
    "counter_uniforms": "specsim.verify.accept",
    "generate_simulated_accept_index": "specsim.verify.eagle",
    "greedy_accept": "specsim.verify.accept",
    "probabilities": "specsim.verify.accept",
    "safe_fixed_token": "specsim.verify.tokens",
}


__getattr__ = lazy_names(__name__, _HOMES)


def __dir__() -> list[str]:
    return sorted(__all__)
