"""The folder of the demo, with its data, pipeline, catalog and picture."""

from __future__ import annotations

import shutil
from importlib.resources import files
from pathlib import Path

from pyiceberg.catalog import Catalog, load_catalog

from icestream.errors import InvalidArgumentError

CATALOG = "demo"
TABLE = "shop.orders"
_MARKER = ".icestream-demo"
_CONFIGURATION = """\
catalog:
  {name}:
    type: sql
    uri: {uri}
    warehouse: {warehouse}
"""


class DemoFolder:
    """The paths of the demo, and its catalog.

    Args:
        path: The folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self.data = self.path / "data"
        self.pipeline = self.path / "pipeline.yaml"
        self.state = self.path / "state"
        self.picture = self.path / "memory.svg"

    def renew(self) -> None:
        """Create the folder again, with the pipeline and PyIceberg's configuration.

        Raises:
            InvalidArgumentError: If the folder has files and was not created by a demo.
        """
        if self.path.exists():
            if not self.path.is_dir() or (
                any(self.path.iterdir()) and not (self.path / _MARKER).exists()
            ):
                raise InvalidArgumentError(
                    f"{self.path} was not created by the demo, which would delete it: choose "
                    "another folder with --folder"
                )
            shutil.rmtree(self.path)
        self.data.mkdir(parents=True)
        (self.path / _MARKER).touch()
        self.pipeline.write_text(
            (files("icestream.cli.demo") / "pipeline.yaml").read_text("utf-8"), "utf-8"
        )
        (self.path / ".pyiceberg.yaml").write_text(
            _CONFIGURATION.format(name=CATALOG, **self._places()), "utf-8"
        )

    def open_catalog(self) -> Catalog:
        """Open the demo's catalog, whatever else is configured."""
        return load_catalog(CATALOG, type="sql", **self._places())

    def _places(self) -> dict[str, str]:
        return {
            "uri": f"sqlite:///{self.path / 'catalog.db'}",
            "warehouse": (self.path / "warehouse").as_uri(),
        }
