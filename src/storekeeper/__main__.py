"""`python -m storekeeper`: the same as the `storekeeper` command. May import the command line only."""

from storekeeper.cli import main

main()
