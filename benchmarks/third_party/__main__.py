"""Trains in environments of third-party packages from the package index, and reports how it went.

    python -m benchmarks.third_party                  tries the packages that have no result yet
    python -m benchmarks.third_party minigrid crafter tries these, if they have no result yet
    python -m benchmarks.third_party --again crafter  tries one again; can be repeated
    python -m benchmarks.third_party --list           shows outcomes, and what looks like a defect
    python -m benchmarks.third_party --report         writes docs/inside/environments.md

Takes hours. The packages are the lines of packages.csv, which also says by hand what the trial
cannot find out: further requirements, the id, modules to import, arguments. Each package is
installed over the packages of the Python that runs this command, into a small virtual environment
that is removed afterwards. Then its environment is found, checked by Gymnasium, shown by
border-env, trained in briefly by border-train and evaluated by border-eval, whose returns must be
those of a plain loop with the saved policy. Results are stored in benchmarks/results/third_party.
Ctrl-C loses only the unfinished packages.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import traceback
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import partial
from pathlib import Path

from benchmarks.table import say
from benchmarks.third_party.commands import Commands, Stopped
from benchmarks.third_party.packages import (
    Package,
    Result,
    read_packages,
    read_results,
    result_path,
    write_result,
)
from benchmarks.third_party.trial import try_package
from benchmarks.third_party.verdict import outcome_of, reason_of, suspicions
from border_cli.words import did_you_mean, pluralize


def main() -> None:
    arguments = _parser().parse_args()
    chosen = choose(arguments.packages, arguments.again)
    if arguments.list:
        for result in read_results().values():
            print("\n".join(lines_of(result)))
    elif arguments.report:
        from benchmarks.third_party.report import write_report

        write_report()
    else:
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        try:
            sys.exit(try_all(chosen, jobs=arguments.jobs, limit_s=arguments.minutes * 60))
        except KeyboardInterrupt:
            sys.exit(130)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.third_party",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("packages", nargs="*", metavar="NAME", help="names (default: all)")
    parser.add_argument(
        "--again", action="append", default=[], metavar="NAME", help="try this package again"
    )
    parser.add_argument("--jobs", type=int, default=2, help="packages at once (default: 2)")
    parser.add_argument(
        "--minutes", type=float, default=4.0, help="time limit of a package (default: 4)"
    )
    parser.add_argument("--list", action="store_true", help="show the results")
    parser.add_argument("--report", action="store_true", help="write the page")
    return parser


def choose(names: list[str], again: list[str]) -> list[Package]:
    """Returns the packages to try: those that are named, or all, without a result, and `again`."""
    packages = read_packages()
    for name in [*names, *again]:
        if name not in packages:
            sys.exit(f"packages.csv has no package {name!r}{did_you_mean(name, packages)}")
    wanted = names if names or again else [*packages]
    lacking = [name for name in wanted if not result_path(name).exists()]
    return [packages[name] for name in dict.fromkeys([*again, *lacking])]


def lines_of(result: Result) -> list[str]:
    """Describes a result: its outcome and reason, then what looks like a defect."""
    reason = reason_of(result)
    first = f"{result['package']:28} {outcome_of(result)}{f': {reason}' if reason else ''}"
    return [first[:200], *(f"    {text}" for text in suspicions(result))]


def try_all(packages: list[Package], *, jobs: int, limit_s: float) -> int:
    """Tries the packages, `jobs` at once; returns the exit status."""
    say(f"{pluralize(len(packages), 'package')} to try, {jobs} at once")
    commands, status = Commands(), 0
    with tempfile.TemporaryDirectory(prefix="border-third-party-") as name:
        attempt = partial(
            try_package, commands=commands, folder=Path(name).resolve(), limit_s=limit_s
        )
        with ThreadPoolExecutor(jobs) as pool:
            futures = {pool.submit(attempt, package): package for package in packages}
            try:
                for future in as_completed(futures):
                    error = future.exception()
                    if isinstance(error, Stopped):
                        continue
                    if error is not None:  # of the trial itself: the next start tries it again
                        status = 1
                        say(f"{futures[future].name}: the trial failed")
                        traceback.print_exception(error)
                        continue
                    write_result(future.result())
                    say("\n".join(lines_of(future.result())))
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                commands.stop()
                raise
    return status


if __name__ == "__main__":
    main()
