"""`python -m icestream` is `icestream`."""

from icestream.cli.main import main

main()
