"""How `AcceptanceSampler` draws: its tables, its sequence, and its counter-based draws."""
