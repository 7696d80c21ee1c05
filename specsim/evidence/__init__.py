"""Statistics whose error rates are promised: sequential and classical tests, regions, design."""
