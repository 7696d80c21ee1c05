"""Reference code that uses a forced acceptance length: accept rules, and what builds on them."""
