"""Five lines that put the whole catalogue into a test suite."""

from my_sampler import sample_acc_len

import specsim


@specsim.parametrize_with_properties([sample_acc_len], methods=["match-expected"])
def test_simulated_acceptance_length(check):
    check()
