"""How a run went: the figures in `run.json`, and the same as lines of the log."""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from border_cli.core.config import RunConfig
from border_cli.core.errors import Interrupted, reason_of
from border_cli.core.interfaces import ActorStats, Agent
from border_cli.core.output import TrainerStats
from border_cli.core.threads import available_cores
from border_cli.core.timing import summed
from border_cli.core.words import counted, visible
from border_cli.launch.build import Assembly, actor_manager_config
from border_cli.recorder import figures
from border_cli.registry import ACTOR_MANAGERS, REPLAY_BUFFERS
from border_cli.trainer.bottleneck import bottleneck_advice

FIGURES = (
    *("best_score", "best_opt_steps", "opt_steps", "env_steps", "samples_total"),
    *("evaluations", "duration_s"),
    "out_of_bounds",
    *("saves", "saves_skipped", "save_failures", "recorder_failures"),
    "recorders_switched_off",
)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Result:
    """The trained agent, the statistics and the run directory of a finished run.

    Its `repr` is one line, and a notebook shows a table.
    """

    agent: Agent
    best_score: float  # minus infinity without an evaluation
    actor_stats: list[ActorStats]
    trainer_stats: TrainerStats
    run_dir: Path
    exit_reason: str  # as in `run.json`, such as "max_opt_steps reached"

    def __repr__(self) -> str:
        described = "; ".join(f"{name} {text}" for name, text in self._summary().items())
        return f"<Result: {described}>"

    def _repr_html_(self) -> str:
        rows = "".join(
            f'<tr><th style="text-align: left">{name}</th>'
            f'<td style="text-align: left">{html.escape(text)}</td></tr>'
            for name, text in self._summary().items()
        )
        return f"<table>{rows}</table>"

    def _summary(self) -> dict[str, str]:
        stats, best = self.trainer_stats, "none"
        if stats.best_opt_steps is not None:
            best = f"{figures.score(self.best_score)} at update {stats.best_opt_steps:,}"
        return {
            "status": f"done ({self.exit_reason})",
            "best score": best,
            "updates": f"{stats.opt_steps:,}",
            "env steps": f"{stats.env_steps:,}",
            "duration": figures.duration(stats.duration_s),
            "run directory": visible(str(self.run_dir)),
        }


def status_of(error: BaseException) -> tuple[str, str]:
    """Status and reason of a run that this ended."""
    if isinstance(error, Interrupted | KeyboardInterrupt):
        return "interrupted", str(error) or "KeyboardInterrupt"
    return "failed", reason_of(error)


def facts_of(config: RunConfig, assembly: Assembly, *, failed: bool) -> dict[str, Any]:
    """Scores, counters, failures, times, and the bottleneck."""
    stats, actors = assembly.trainer.stats(), assembly.parts.actors.stats()
    facts: dict[str, Any] = {name: getattr(stats, name) for name in FIGURES}
    facts["final_score"] = stats.last_score
    facts["actors"] = [_of_actor(each) for each in actors]
    actor_seconds = summed(each.seconds for each in actors)
    facts["seconds"] = {
        name: {section: round(spent_s, 3) for section, spent_s in seconds.items() if spent_s > 0}
        for name, seconds in (("learner", stats.seconds), ("actors", actor_seconds))
    }
    if not failed:  # the bottleneck of a run that broke is what broke it
        manager = ACTOR_MANAGERS.entry_of(actor_manager_config(config)).name  # in effect
        facts["bottleneck"] = bottleneck_advice(
            config,
            learner=stats.seconds,
            actors=actor_seconds,
            device=assembly.parts.agent.device_name,
            cores=available_cores(),
            threads=assembly.parts.agent.num_threads,
            in_learner_thread=manager == "serial",
            actor_threads=manager == "thread",
            prioritized=REPLAY_BUFFERS.entry_of(config.replay_buffer).name == "prioritized",
        )
    return facts


def _of_actor(stats: ActorStats) -> dict[str, Any]:
    found = asdict(stats)
    del found["seconds"]  # an estimate, told for all actors together
    return found | {"samples_per_sec": stats.samples_per_sec}


def closing_lines(facts: Mapping[str, Any]) -> Iterator[str]:
    """What `facts_of` found, one sentence per line."""
    for each in facts["actors"]:
        yield (
            f"actor {each['actor_id']}: {each['env_steps']:,} env steps, {each['samples']:,} "
            f"samples, {each['samples_per_sec']:,.1f} samples/s, {each['duration_s']:,.1f} s, "
            f"{counted(each['restarts'], 'restart')}, "
            f"{counted(each['lost_samples'], 'lost sample')}"
        )
    yield (
        f"trainer: {counted(facts['opt_steps'], 'update')}, "
        f"{counted(facts['samples_total'], 'sample')}, "
        f"{counted(facts['evaluations'], 'evaluation')}, {facts['duration_s']:,.1f} s, "
        f"{counted(facts['saves'], 'checkpoint')}"
    )
    for name, seconds in facts["seconds"].items():
        total_s = sum(seconds.values())
        longest_first = sorted(seconds.items(), key=lambda each: -each[1])
        shares = [f"{section} {100 * each_s / total_s:.1f} %" for section, each_s in longest_first]
        if shares:
            yield f"{name} time: {', '.join(shares)}"
    if facts.get("bottleneck"):
        yield f"bottleneck: {facts['bottleneck']}"
