"""The folder of the demo: data, pipeline, catalog and pictures, made anew each time."""

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
    """Where things are in it.

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
        """Make it, empty but for the pipeline and PyIceberg's configuration.

        Raises:
            InvalidArgumentError: If there is something that no demo has made.
        """
        if self.path.exists():
            if not self.path.is_dir() or (
                any(self.path.iterdir()) and not (self.path / _MARKER).exists()
            ):
                raise InvalidArgumentError(
                    f"{self.path} is there and was not made by the demo, which would delete it: "
                    "name another folder with --folder"
                )
            shutil.rmtree(self.path)
        self.data.mkdir(parents=True)
        (self.path / _MARKER).touch()
        self.pipeline.write_text(
            (files("icestream.demo") / "pipeline.yaml").read_text("utf-8"), "utf-8"
        )
        (self.path / ".pyiceberg.yaml").write_text(
            _CONFIGURATION.format(name=CATALOG, **self._places()), "utf-8"
        )

    def open_catalog(self) -> Catalog:
        """The catalog that the configuration names, whatever else is configured."""
        return load_catalog(CATALOG, type="sql", **self._places())

    def _places(self) -> dict[str, str]:
        return {
            "uri": f"sqlite:///{self.path / 'catalog.db'}",
            "warehouse": (self.path / "warehouse").as_uri(),
        }
