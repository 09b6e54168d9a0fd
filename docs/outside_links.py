"""For MkDocs: links to files of the repository that are not in the site become plain text."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Any

_LINK = re.compile(r"\[([^\]]+)\]\((?!https?:|#)([^)\s#]+)(#[^)\s]*)?\)")


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Called by MkDocs for each page."""
    folder = PurePosixPath(page.file.src_uri).parent

    def plain(match: re.Match[str]) -> str:
        depth = 0
        for part in (folder / match[2]).parts:
            depth += -1 if part == ".." else 1
            if depth < 0:
                return match[1]
        return match[0]

    return _LINK.sub(plain, markdown)
