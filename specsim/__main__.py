"""``python -m specsim`` is the command line."""

from specsim.cli import main

main()
