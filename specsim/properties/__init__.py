"""The catalogue: one function per property, registered with its id, statement and source."""
