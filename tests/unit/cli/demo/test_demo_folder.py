"""The folder of the demo."""

from __future__ import annotations

from pathlib import Path

import pytest

import icestream as ice
from icestream.cli.demo.demo_folder import CATALOG, DemoFolder


def test_a_folder_has_a_pipeline_a_configuration_and_a_catalog(tmp_path: Path) -> None:
    folder = DemoFolder(tmp_path / "demo")
    folder.renew()
    assert "loads:" in folder.pipeline.read_text()
    assert f"  {CATALOG}:" in (folder.path / ".pyiceberg.yaml").read_text()
    catalog = folder.open_catalog()
    catalog.create_namespace("shop")
    catalog.close()
    folder.renew()
    assert not (folder.path / "catalog.db").exists()


def test_a_folder_that_the_demo_did_not_create_is_kept(tmp_path: Path) -> None:
    mine = tmp_path / "mine.txt"
    mine.write_text("keep")
    with pytest.raises(ice.InvalidArgumentError, match="was not created by the demo"):
        DemoFolder(tmp_path).renew()
    assert mine.read_text() == "keep"
