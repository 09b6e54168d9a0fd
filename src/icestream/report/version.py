"""The version of icestream, which `pyproject.toml` reads from here."""

__version__ = "0.1.0.dev0"
