"""An executor with a cached buffer, in the way that serving engines write it."""

import torch

from specsim import sample_simulated_acc_len


class Executor:
    """Forces the acceptance length of each verify step."""

    def __init__(self, gamma, simulate_acc_len, simulate_acc_method):
        self.gamma = gamma
        self.simulate_acc_len = simulate_acc_len
        self.simulate_acc_method = simulate_acc_method
        self.buffer = None

    def _simulated_correct_len(self, *, bs, dtype, device):
        buffer = self.buffer
        if (
            buffer is None
            or buffer.numel() < bs
            or buffer.dtype != dtype
            or buffer.device != device
        ):
            buffer = torch.empty(max(bs, 512), dtype=dtype, device=device)
            self.buffer = buffer
        length = sample_simulated_acc_len(
            self.simulate_acc_len, self.simulate_acc_method, self.gamma + 1
        )
        return buffer[:bs].fill_(length - 1)
