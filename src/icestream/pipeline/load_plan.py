"""What a load would do, from listings and metadata alone: nothing is touched."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from icestream.pipeline.load_spec import LoadSpec
from icestream.pipeline.state_folder import StateFolder


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """What a load would do."""

    load: str

    def to_dict(self) -> dict[str, Any]:
        """The plan as a dictionary that `json.dumps` takes."""
        return asdict(self)


def plan_load(spec: LoadSpec, *, state: StateFolder | None) -> LoadPlan:
    """Work out what a load would do."""
    raise NotImplementedError
