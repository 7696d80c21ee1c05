"""Adapters: each calls one kind of code under test in one uniform way."""
