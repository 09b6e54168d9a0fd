"""The code in the documents: which of it runs, what it needs first, and why some does not.

A block of `python` or `console` is run. Comments in HTML, which readers do not see, say more:

    <!-- run first             Python that makes what the document takes as given
    ...
    -->
    <!-- not run: a cluster's address -->      the block that follows needs something else
    <!-- output -->           the block that follows is what the block before it prints

`python -m tests.docs.run_documents --update FOLDER DOCUMENT ...` writes these outputs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

REPOSITORY = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted(
    str(path.relative_to(REPOSITORY))
    for pattern in ("README.md", "docs/*.md", "docs/guides/*.md", "docs/tasks/*.md")
    for path in REPOSITORY.glob(pattern)
)
# Their blocks start Spark, which takes minutes: run by make test-long.
SPARK_DOCUMENTS = ["README.md", "docs/guides/streaming.md", "docs/spark.md"]
SHELLS = ("console", "bash", "sh", "shell")

_PART = re.compile(
    r"^<!-- run first\n(?P<first>.*?)^-->"
    r"|^<!-- not run: (?P<reason>.*?) -->\s*\n(?=\s*```)"
    r"|^<!-- output -->\n```text\n(?P<output>.*?)^```"
    r"|^(?P<indent> *)```(?P<language>\w*)[^\n]*\n(?P<code>.*?)^(?P=indent)```",
    re.DOTALL | re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class Block:
    """A block of code in a document.

    Attributes:
        language: `"python"` or `"console"`.
        code: What it says.
        line: Where it begins.
        reason: Why it is not run; None if it is.
        output: What the document says that it prints; None if it says nothing.
    """

    language: Literal["python", "console"]
    code: str
    line: int
    reason: str | None = None
    output: str | None = None

    def commands(self) -> list[str]:
        """The lines of a console block, without comments; those that go on are joined."""
        joined = re.sub(r"\\\n\s*", "", self.code)
        lines = (line.partition("  #")[0].strip() for line in joined.splitlines())
        return [line.removeprefix("$ ") for line in lines if line and not line.startswith("#")]


def blocks_of(text: str) -> list[Block]:
    """Every block of a document that is code to run, and what is to run first."""
    blocks: list[Block] = []
    reason: str | None = None
    for match in _PART.finditer(text):
        line = text.count("\n", 0, match.start()) + 2
        if match["reason"] is not None:
            reason = match["reason"].strip()
            continue
        if match["output"] is not None:
            blocks[-1] = replace(blocks[-1], output=match["output"])
        elif match["first"] is not None:
            blocks.append(Block("python", match["first"], line))
        elif match["language"] == "python":
            code = re.sub(f"^{match['indent']}", "", match["code"], flags=re.MULTILINE)
            blocks.append(Block("python", code, line, reason))
        elif match["language"] in SHELLS:
            blocks.append(Block("console", match["code"], line, reason))
        reason = None
    return blocks


def comparable(output: str) -> str:
    """An output without what differs from run to run: measurements and snapshot ids."""
    text = re.sub(r"\d[\d.,]*(?= (?:[kMG]?B|seconds|s|ms)\b)", "#", output)
    return re.sub(r"\b\d{15,}\b", "#", text)


def with_outputs(text: str, outputs: list[str]) -> str:
    """A document with new outputs, in the order of its blocks of output."""
    new = iter(outputs)
    return re.sub(
        r"^<!-- output -->\n```text\n.*?^```",
        lambda _: f"<!-- output -->\n```text\n{next(new)}```",
        text,
        flags=re.DOTALL | re.MULTILINE,
    )
