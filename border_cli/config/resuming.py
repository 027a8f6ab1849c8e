"""Resuming a run, from its settings' side: what goes with `resume=RUN_DIR`, what may change, and
whether the run in a job's folder can be resumed, is running or is finished."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from hydra.core.override_parser.types import Override, OverrideType

from border_cli.config.describe import shown
from border_cli.config.overrides import parsed
from border_cli.config.saved import (
    begin_attempt,
    load_resolved,
    read_saved,
    resolved_yaml,
    saved_options,
)
from border_cli.errors import CheckpointError, ConfigError, reachable
from border_cli.registry import GROUPS
from border_cli.run.finding import resumable, run_around
from border_cli.run.layout import refuse_foreign, remove_attempt
from border_cli.run.status import RunLock, import_paths, read_run
from border_cli.settings.base import flat
from border_cli.settings.run import AUTO, Objective, RunConfig, TrainerConfig
from border_cli.system.files import SETTINGS, SWEEP_JSON
from border_cli.words import setting, shortest

MAY_CHANGE = (  # these settings, and all that lies below them
    *(
        f"trainer.{name}"
        for name in (
            *("max_opt_steps", "max_env_steps", "max_time_s"),
            *("stop_at_score", "stop_evals", "stop_confirmations"),
            *("eval_interval", "record_interval", "save_interval", "save_every_s"),
            *("sync_interval", "stall_timeout_s"),
        )
    ),
    *("actor_manager", "device", "agent.num_threads", "agent.compile", "agent.matmul"),
    *("evaluator.background", "evaluator.where", "evaluator.address"),
    *("evaluator.num_workers", "evaluator.resources", "env.probe"),
    *("name", "recorder", "checkpoint", "sweep", "quiet", "statistics", "objective"),
)
RUN_MARKS = ("run.json", ".hydra")
OF_ONE_ATTEMPT = ("run_dir", "resume", "init_from", "dry_run")  # no part of the comparison
FINISHED = "done"  # the status of a run that has reached a limit
_LIMITS = ("max_opt_steps", "max_env_steps", "max_time_s", "stop_at_score")
_ABSENT = "absent"
_REASONS = {
    "run_dir": "a resumed run keeps its run directory",
    "init_from": "a resumed run has its own weights; init_from starts a new run",
}


def may_change(key: str) -> bool:
    """Whether a run can resume with another value of this setting."""
    return any(key == each or key.startswith(f"{each}.") for each in MAY_CHANGE)


def refuse_beside_resume(
    run_dir: Path, overrides: Sequence[str], *, multirun: bool, config_name: str
) -> None:
    """Refuses what contradicts `resume=RUN_DIR`, and a folder that holds no run."""
    if multirun:
        raise ConfigError(
            "resume=RUN_DIR continues one run and -m runs several: to continue a sweep, repeat its "
            "command with run_dir=SWEEP_DIR resume=auto"
        )
    if config_name != "config":
        raise ConfigError(
            f"-cn {config_name}: a resumed run uses its own settings, {run_dir / SETTINGS}"
        )
    for override in parsed(overrides):
        if override.key_or_group in _REASONS:
            reason = _REASONS[override.key_or_group]
            raise ConfigError(
                f"{override.input_line} cannot be combined with resume=RUN_DIR: {reason}"
            )
    refuse_no_run(run_dir)


def without_its_own(run_dir: Path, overrides: Sequence[str]) -> list[str]:
    """The overrides but for choices that the run has made and keeps: `agent=dqn` of one with DQN
    is no reason to begin with the values of that option."""
    own = saved_options(read_saved(run_dir / SETTINGS))

    def is_kept(override: Override) -> bool:
        group = override.key_or_group
        is_choice = override.type is OverrideType.CHANGE and group in GROUPS
        return is_choice and not may_change(group) and own.get(group) == override.value()

    return [str(each.input_line) for each in parsed(overrides) if not is_kept(each)]


def holds_run(folder: Path) -> bool:
    """Whether an attempt has begun in the directory."""
    return any((folder / mark).exists() for mark in RUN_MARKS)


def refuse_no_run(run_dir: Path) -> None:
    """Raises where a folder holds no single run."""
    if not run_dir.is_dir():
        raise ConfigError(f"resume: no such directory: {run_dir}{run_around(run_dir)}")
    if (run_dir / SWEEP_JSON).exists():
        jobs = sorted(each.parent.parent for each in run_dir.glob(f"*/{SETTINGS}"))
        one = f", or resume one of its jobs, such as {jobs[0]}" if jobs else ""
        raise ConfigError(
            f"resume: {run_dir} is the directory of a sweep: repeat its command with "
            f"run_dir={run_dir} resume=auto{one}"
        )
    if not (run_dir / SETTINGS).is_file():
        raise ConfigError(
            f"resume: {run_dir} is not a run directory: there is no {SETTINGS}{run_around(run_dir)}"
        )


@dataclass(frozen=True, slots=True)
class Change:
    """One setting that differs."""

    key: str
    before: object
    after: object

    def __str__(self) -> str:
        return f"{self.key}: {shown(self.before)} -> {shown(self.after)}"

    @property
    def allowed(self) -> bool:
        """Whether a run can resume with it."""
        if self.key == "imports":  # more modules change nothing; components need those of before
            assert isinstance(self.before, list)
            assert isinstance(self.after, list)
            return set(self.before) <= set(self.after)
        return may_change(self.key)


def changes(before: RunConfig, after: RunConfig) -> list[Change]:
    """The differences between the saved and the present settings of a run, one entry per key.

    Of another component of a group its name comes first, then the settings that both have.
    """
    old, new = _compared(before), _compared(after)
    others = {group for group in GROUPS if old[group] != new[group]}
    return [
        Change(key, old.get(key, _ABSENT), new.get(key, _ABSENT))
        for key in dict.fromkeys([*old, *new])
        if shown(old.get(key, _ABSENT)) != shown(new.get(key, _ABSENT))
        and not (key.partition(".")[0] in others and (key in old) != (key in new))
    ]


def _compared(config: RunConfig) -> dict[str, object]:
    """The component of each group, and settings by their dotted names."""
    chosen = {group: getattr(config, group) for group in GROUPS}
    components = {
        group: list(each) if isinstance(each, dict) else GROUPS[group].entry_of(each).name
        for group, each in chosen.items()
    }
    settings = {key: value for key, value in flat(config).items() if value != {}}
    for key in (*OF_ONE_ATTEMPT, *(f"{group}.option" for group in GROUPS)):
        settings.pop(key, None)
    return {**components, **settings}


def refuse_fixed(found: Sequence[Change], run_dir: Path, *, job: str) -> None:
    """Raises ConfigError for changes with which the run cannot resume, and lists them.

    `job` says which one of a sweep it is.
    """
    fixed = [each for each in found if not each.allowed]
    if not fixed:
        return
    listed = "\n".join(f"  {each}" for each in fixed)
    init_from = shlex.quote(setting("init_from", str(shortest(run_dir))))
    raise ConfigError(
        f"{job}a resumed run keeps its settings, but these differ from "
        f"{shortest(run_dir) / SETTINGS}:\n{listed}\n"
        f"These may change: {', '.join(MAY_CHANGE)}.\n"
        f"To start a new run from its weights, set {init_from}"
    )


@dataclass(frozen=True, slots=True)
class Finished:
    """A run that has reached a limit, so that nothing is left to do."""

    score: float
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The attempt that another one continues; all as it is here where there is none."""

    resumes: bool = False  # from a checkpoint; else the run starts, or starts over
    changed: tuple[str, ...] = ()  # `trainer.max_opt_steps: 10000 -> 20000`
    finished: Finished | None = None


def found_in(run_dir: Path, config: RunConfig, *, trust: bool = False, job: str = "") -> Found:
    """The earlier run that a run with these settings finds in its directory; nothing is written.

    Raises ConfigError where it would start in the place of another, or where that one's settings
    may not change so. `job`: see `refuse_fixed`.
    """
    if config.resume is None and holds_run(run_dir):
        raise ConfigError(
            f"{shortest(run_dir)} already contains a run: choose another run_dir, or add "
            "resume=auto"
        )
    if config.resume not in (None, AUTO):
        refuse_no_run(run_dir)
    if config.resume is None or not (run_dir / SETTINGS).is_file():
        return Found()
    done = read_run(run_dir).get("status") == FINISHED
    resumes = done or bool(resumable(run_dir))  # what is finished is never removed
    if config.resume == AUTO and not resumes:
        return Found()  # nothing is lost by other settings
    changed: list[Change] = []
    limits = config.trainer
    if (run_dir / SETTINGS).read_text(encoding="utf-8") != resolved_yaml(config):
        saved = load_resolved(run_dir, import_paths(run_dir), trust=trust)
        changed, limits = changes(saved, config), saved.trainer
        refuse_fixed(changed, run_dir, job=job)
    end = finished(run_dir, config, limits)
    if done and end is None and not resumable(run_dir):
        raise CheckpointError(f"{run_dir} is finished, but has no checkpoint to resume from")
    return Found(resumes=resumes, changed=tuple(map(str, changed)), finished=end)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One attempt of a run, in whose directory nobody else runs."""

    run_dir: Path
    lock: RunLock
    found: Found
    record: Mapping[str, str]
    settings: str  # the text of `.hydra/resolved.yaml`

    def confirm(self) -> None:
        """Saves the settings of a run that is resumed, once nothing refuses it any more."""
        if self.found.resumes:
            begin_attempt(self.run_dir, self.record, self.settings)


@contextmanager
def attempt(
    run_dir: Path, config: RunConfig, record: Mapping[str, str], *, trust: bool = False
) -> Iterator[Attempt]:
    """Within the block the directory is this process's own: what was found there stays true.

    A new run removes what an attempt without a checkpoint left and saves its settings, with the
    `record` of how it was asked for: files of `.hydra` and texts. Raises RunInUse where another
    process runs there, and as `found_in`: another may have run there since these settings were
    checked. Nothing is changed then.
    """
    settings = resolved_yaml(config)
    refuse_foreign(run_dir)
    with RunLock(run_dir) as lock:
        with reachable(ConfigError):
            found = found_in(run_dir, config, trust=trust)
        if not found.resumes:
            remove_attempt(run_dir)
            begin_attempt(run_dir, record, settings)
        yield Attempt(run_dir=run_dir, lock=lock, found=found, record=record, settings=settings)


def finished(run_dir: Path, config: RunConfig, saved: TrainerConfig) -> Finished | None:
    """The end of the run in a folder, unless the limit that ended it has grown since."""
    facts = read_run(run_dir)
    if facts.get("status") != FINISHED:
        return None
    limit = str(facts.get("exit_reason")).partition(" ")[0]
    ended_by = [limit] if limit in _LIMITS else _LIMITS
    if any(_grew(each, saved, config.trainer) for each in ended_by):
        return None
    score = facts.get("best_score" if config.objective == Objective.best else "final_score")
    with_score = f" with score {score:.10g}" if score is not None else ""
    what, more = facts.get("exit_reason"), "increase a limit to continue"
    if limit in _LIMITS:
        what = f"{limit}={getattr(saved, limit)} reached"
        more = f"increase trainer.{limit} to continue"
    return Finished(
        float(score) if score is not None else -math.inf,
        f"{shortest(run_dir)} is finished{with_score}: {what}; {more}",
    )


def _grew(limit: str, saved: TrainerConfig, now: TrainerConfig) -> bool:
    before, after = getattr(saved, limit), getattr(now, limit)
    if before is None:  # it has ended nothing
        return False
    patient = limit == "stop_at_score" and now.stop_evals > saved.stop_evals
    return after is None or after > before or patient
