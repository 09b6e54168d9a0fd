"""The command line: a command parses its options, calls the library, and prints the report.

```
main.py          the program `icestream`: collects the commands, turns errors into exit codes
command.py       decorator for commands: adds the common options and the examples
exit_codes.py    exit code for each kind of error
help_screen.py   what `icestream` and `icestream --help` show
usage_errors.py  wrong options and commands, answered with the ones that exist
interrupts.py    Ctrl-C, SIGTERM and warnings of libraries

commands/        the commands
options/         options and value types that several commands share
output/          text, JSON, progress lines and output files
demo/            data, measurements and pictures of `icestream demo`
```

`main` ends the process with the exit code of the command:

```python
from icestream.cli.main import main

main(["tables", "--json"])
```
"""
