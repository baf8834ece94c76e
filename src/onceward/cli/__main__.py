"""`python -m onceward.cli`: the program `onceward`."""

from onceward.cli.main import main

main()
