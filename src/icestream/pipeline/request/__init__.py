"""Requests: pydantic models of a load, its sources, its tests and a pipeline file.

`LoadSpec.of` validates the arguments of `icestream.load`. `PipelineFile.read` validates a file and
gives a `LoadSpec` for each load. Both raise errors that name the option and suggest a fix.

```
load_spec.py      one load                source_spec.py   its sources
column_spec.py    its columns and rows    database_address.py  addresses of databases
pipeline_file.py  several loads in YAML   located_yaml.py  YAML with line numbers and variables
checks.py         tests on the result     validation.py    pydantic's errors as sentences
engine_choice.py  Spark or this process
```
"""
