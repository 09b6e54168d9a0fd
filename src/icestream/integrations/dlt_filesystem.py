"""dlt's `filesystem` destination, with icestream as the writer of Iceberg tables.

```python
import dlt
from icestream.integrations.dlt_filesystem import filesystem

pipeline = dlt.pipeline(
    "shop",
    destination=filesystem("s3://lake", memory="512MB"),
    dataset_name="raw",
)
pipeline.run(orders, table_format="iceberg", write_disposition="merge", primary_key="id")
```

A line in dlt's configuration redirects pipelines that have `destination="filesystem"`:

```toml
[destination.filesystem]
destination_type = "icestream.integrations.dlt_filesystem.filesystem"
```

Everything but the writing of Iceberg tables is dlt's own: other table formats, the state and schema
of the pipeline, `pipeline.dataset()`, `pipeline.drop()` and `refresh`. `dlt_table_load.py` has the
job that writes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from icestream.errors import InvalidArgumentError, MissingExtraError

try:
    import dlt.destinations
    from dlt.common.configuration import configspec, resolve_type
    from dlt.common.configuration.specs import CredentialsConfiguration
    from dlt.common.destination.typing import PreparedTableSchema
    from dlt.common.schema.exceptions import SchemaCorruptedException
    from dlt.common.schema.utils import get_first_column_name_with_prop, get_nested_tables
    from dlt.common.storages.load_package import LoadJobInfo, ParsedLoadJobFileName
    from dlt.destinations.impl.filesystem.configuration import (
        FilesystemDestinationClientConfiguration,
    )
    from dlt.destinations.impl.filesystem.filesystem import FilesystemClient, ReferenceFollowupJob
    from dlt.destinations.job_impl import ReferenceFollowupJobRequest
except ModuleNotFoundError as error:
    raise MissingExtraError("dlt is not installed: pip install 'icestream[dlt]'") from error

from icestream.integrations.dlt_table_load import IcestreamLoadJob, TableHints
from icestream.memory.budget import DEFAULT_MEMORY, parse_bytes


@configspec
class FilesystemConfiguration(FilesystemDestinationClientConfiguration):
    """dlt's configuration of the destination, and the memory limit."""

    memory: str = DEFAULT_MEMORY
    """Maximum number of bytes that the Iceberg tables of a load hold, all together."""
    parallel_tables: int = 1
    """Number of Iceberg tables that are loaded at the same time; each gets its part of `memory`."""

    def on_resolved(self) -> None:
        """Check the values.

        Raises:
            InvalidArgumentError: If one is wrong.
        """
        parse_bytes(self.memory, name="destination.filesystem.memory")
        if self.parallel_tables < 1:
            raise InvalidArgumentError(
                f"destination.filesystem.parallel_tables is {self.parallel_tables}: give 1 or more"
            )

    @resolve_type("credentials")  # dlt wants it repeated in each subclass
    def resolve_credentials_type(self) -> type[CredentialsConfiguration]:
        """The class of the credentials, which depends on `bucket_url`."""
        return super().resolve_credentials_type()


class IcestreamFilesystemClient(FilesystemClient):
    """dlt's client, which gives the files of Iceberg tables to `IcestreamLoadJob`."""

    @staticmethod
    def get_reference_followup_job_class(
        table: PreparedTableSchema,
    ) -> type[ReferenceFollowupJob] | None:
        """The job that loads all files of a table in a package."""
        if table.get("table_format") == "iceberg":
            return IcestreamLoadJob
        return FilesystemClient.get_reference_followup_job_class(table)

    def get_reference_followup_job_requests(
        self,
        table_chain: Sequence[PreparedTableSchema],
        completed_table_chain_jobs: Sequence[LoadJobInfo] | None,
    ) -> list[ReferenceFollowupJobRequest]:
        """One job for each table, which also gets the files of the root table in a merge."""
        jobs = completed_table_chain_jobs or ()
        root = table_chain[0]
        is_merge = root.get("table_format") == "iceberg" and root["write_disposition"] == "merge"
        if not is_merge:
            return super().get_reference_followup_job_requests(table_chain, jobs)
        # An upsert deletes nested rows even if there are no new ones.
        is_upsert = TableHints.of(root).strategy == "upsert"
        files: dict[str, list[LoadJobInfo]] = {str(table["name"]): [] for table in table_chain}
        of_root = files[str(root["name"])]
        for job in jobs:
            files[job.job_file_info.table_name].append(job)
        requests = []
        for name, own in files.items():
            if own or (is_upsert and of_root):
                first = own[0].job_file_info if own else _new_file_of(name)
                needed = own if own is of_root else [*own, *of_root]
                paths = [job.file_path for job in needed]
                requests.append(ReferenceFollowupJobRequest(first.file_name(), paths))
        return requests

    def verify_schema(
        self,
        only_tables: Iterable[str] | None = None,
        new_jobs: Iterable[ParsedLoadJobFileName] | None = None,
    ) -> list[PreparedTableSchema]:
        """Refuse what icestream does not do, before anything is loaded."""
        tables = super().verify_schema(only_tables, new_jobs)  # type: ignore[arg-type]
        for table in tables:
            if table.get("table_format") == "iceberg" and "parent" not in table:
                self._verify_order(table)
        return tables

    def _verify_order(self, table: Any) -> None:
        if table["write_disposition"] != "merge" or table.get("x-stage-data-deduplicated"):
            return
        column = get_first_column_name_with_prop(table, "dedup_sort")
        if column is None:
            return
        name = str(table["name"])
        if table["columns"][column]["dedup_sort"] == "asc":
            raise SchemaCorruptedException(
                self.schema.name,
                f"{name}.{column} has the hint dedup_sort='asc', which keeps the first row of a "
                "key, and icestream keeps only the last: use dedup_sort='desc' with a column whose "
                "values decrease",
            )
        nested = get_nested_tables(self.schema.tables, name, include_self=False)
        if nested:
            raise SchemaCorruptedException(
                self.schema.name,
                f"{name}.{column} has the hint dedup_sort, and {nested[0]['name']} has nested rows "
                "of it: dlt gives the nested rows of all rows with the same key the same ids. "
                "Remove duplicates before the load, or set max_table_nesting=0 on the resource",
            )


class filesystem(dlt.destinations.filesystem):  # noqa: N801  # dlt's name
    """dlt's `filesystem` destination, with Iceberg tables written by icestream.

    Args:
        bucket_url: Where to write, see dlt's documentation.
        memory: Maximum number of bytes that the Iceberg tables of a load hold, all together. The
            default is 256 MB, or `destination.filesystem.memory` of dlt's configuration.
        parallel_tables: Number of Iceberg tables that are loaded at the same time; each gets its
            part of `memory`. The default is 1.
        options: The other arguments of dlt's destination.
    """

    __orig_base__ = dlt.destinations.filesystem  # dlt reads the defaults of its arguments

    def __init__(
        self,
        bucket_url: str | None = None,
        *,
        memory: int | str | None = None,
        parallel_tables: int | None = None,
        **options: Any,
    ) -> None:
        ours = {
            "memory": None if memory is None else str(memory),
            "parallel_tables": parallel_tables,
        }
        options.update({name: value for name, value in ours.items() if value is not None})
        super().__init__(bucket_url, **options)  # type: ignore[arg-type]

    @property
    def spec(self) -> type[FilesystemDestinationClientConfiguration]:
        """The class of the configuration."""
        return super().spec if self.is_hf else FilesystemConfiguration

    @property
    def client_class(self) -> type[FilesystemClient]:
        """The class of the client."""
        return super().client_class if self.is_hf else IcestreamFilesystemClient


def _new_file_of(table_name: str) -> ParsedLoadJobFileName:
    """The name of a job for a table without files."""
    return ParsedLoadJobFileName(table_name, ParsedLoadJobFileName.new_file_id(), 0, "parquet")
