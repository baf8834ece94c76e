"""`python -m onceward.cli`: the program `onceward`."""

from onceward.cli.start import main

main()
