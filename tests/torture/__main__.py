"""`make torture`: attacks on tables, each with many faults. `python -m tests.torture --help`."""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path

from tests.torture import bit_flips, catalog_answers, kills, memory, signals, store
from tests.torture.attack import Settings, Verdict

ATTACKS: dict[str, Callable[[Settings], Verdict]] = {
    "kills-sqlite": kills.on_sqlite,
    "kills-postgres": kills.on_postgres,
    "signals": signals.attack,
    "store": store.attack,
    "catalog-sql": catalog_answers.of_sql,
    "catalog-rest": catalog_answers.of_rest,
    "bit-flips": bit_flips.attack,
    "memory": memory.attack,
}
_SHOWN_PROBLEMS = 8


def main(arguments: list[str]) -> int:
    """Make the attacks.

    Returns:
        0 if all was as it should be, else 1.
    """
    options = _options(arguments)
    seed = options.seed if options.seed is not None else random.randrange(1_000_000)
    folder = Path(tempfile.mkdtemp(prefix="icestream-torture-", dir=options.folder))
    _say(
        f"seed {seed}, scale {options.scale:g}: --seed {seed} --scale {options.scale:g} repeats it"
    )
    settings = Settings(seed, options.scale, folder)
    verdicts = []
    for name in options.attacks or ATTACKS:
        verdict = _attacked(name, settings)
        verdicts.append(verdict)
        _say(verdict.line(name))
        for problem in verdict.problems[:_SHOWN_PROBLEMS]:
            _say("    " + problem.strip().replace("\n", "\n    "))
        if len(verdict.problems) > _SHOWN_PROBLEMS:
            _say(f"    and {len(verdict.problems) - _SHOWN_PROBLEMS} more")
    failed = sum(bool(verdict.problems) for verdict in verdicts)
    left_out = sum(verdict.left_out is not None for verdict in verdicts)
    if failed:
        problems = [problem for verdict in verdicts for problem in verdict.problems]
        (folder / "problems.txt").write_text("\n\n".join(problems))
        _say(f"the tables, and all that is wrong with them in problems.txt, are in {folder}")
    else:
        shutil.rmtree(folder)
    faults = sum(verdict.faults for verdict in verdicts)
    passed = len(verdicts) - failed - left_out
    rest = f", {left_out} left out" if left_out else ""
    _say(f"{faults} faults: {passed} passed, {failed} failed{rest}")
    return 1 if failed else 0


def _attacked(name: str, settings: Settings) -> Verdict:
    try:
        return ATTACKS[name](settings)
    except Exception:
        return Verdict(problems=[traceback.format_exc()])


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make torture")
    parser.add_argument("--seed", type=int, help="of the random choices; a random one by default")
    parser.add_argument("--scale", type=float, default=1.0, help="multiplies the number of faults")
    parser.add_argument("--folder", help="where tables go; the system's temporary folder")
    parser.add_argument("attacks", nargs="*", metavar="ATTACK", help=f"of {', '.join(ATTACKS)}")
    options = parser.parse_args(arguments)
    unknown = set(options.attacks) - set(ATTACKS)
    if unknown:
        parser.error(f"no attack is called {', '.join(sorted(unknown))}")
    return options


def _say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
