"""Finds, imports or takes out the code under test, and words what goes wrong with it.

Standard library only: a wrong call is answered before anything heavy is imported.
"""
