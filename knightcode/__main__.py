"""`python -m knightcode`."""

from knightcode.cli import main

main()
