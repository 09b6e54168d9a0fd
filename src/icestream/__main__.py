"""Start the program `icestream`, also as `python -m icestream`."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the program. Ctrl-C while its modules are imported ends it with one line."""
    try:
        from icestream.cli.main import main as run
    except KeyboardInterrupt:
        sys.stderr.write("icestream: interrupted\n")
        sys.exit(130)
    run()


if __name__ == "__main__":
    main()
