"""specsim judges simulated acceptance lengths in speculative decoding.

Names are looked up when they are used, so that ``import specsim`` loads neither torch nor scipy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from specsim._version import __version__
from specsim.lazy import lazy_names

if TYPE_CHECKING:
    from specsim.acceptance import AcceptanceDistribution
    from specsim.checking import check, check_trace
    from specsim.evidence.sequential import SequentialTest
    from specsim.parametrize import parametrize_with_properties
    from specsim.properties.outcome import Outcome, Report
    from specsim.sampler import AcceptanceSampler, sample_simulated_acc_len
    from specsim.targets import Configuration, TargetError
    from specsim.trace.recorder import record

__all__ = [
    "AcceptanceDistribution",
    "AcceptanceSampler",
    "Configuration",
    "Outcome",
    "Report",
    "SequentialTest",
    "TargetError",
    "__version__",
    "check",
    "check_trace",
    "parametrize_with_properties",
    "record",
    "sample_simulated_acc_len",
]

_HOMES = {
    "AcceptanceDistribution": "specsim.acceptance",
    "AcceptanceSampler": "specsim.sampler",
    "Configuration": "specsim.targets",
    "Outcome": "specsim.properties.outcome",
    "Report": "specsim.properties.outcome",
    "SequentialTest": "specsim.evidence.sequential",
    "TargetError": "specsim.targets",
    "check": "specsim.checking",
    "check_trace": "specsim.checking",
    "parametrize_with_properties": "specsim.parametrize",
    "record": "specsim.trace.recorder",
    "sample_simulated_acc_len": "specsim.sampler",
}


__getattr__ = lazy_names(__name__, _HOMES)


def __dir__() -> list[str]:
    return sorted(__all__)
