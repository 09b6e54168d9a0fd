"""Run `python -m icestream` as the command `icestream`."""

from icestream.cli.main import main

main()
