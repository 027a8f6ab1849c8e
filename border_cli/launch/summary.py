"""How a run went: the figures in `run.json`, and the same as lines of the log."""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from border_cli.core.interfaces import ActorStats, Agent
from border_cli.core.output import TrainerStats
from border_cli.core.timing import summed
from border_cli.core.words import counted
from border_cli.launch.effective import EffectiveSettings
from border_cli.recorder import figures
from border_cli.trainer.bottleneck import bottleneck_advice
from border_cli.trainer.post_step import LearnerParts
from border_cli.trainer.trainer import Trainer

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
            "run directory": str(self.run_dir),
        }


def run_summary(
    effective: EffectiveSettings, trainer: Trainer, parts: LearnerParts, *, failed: bool
) -> dict[str, Any]:
    """Scores, counters, failures, times, and the bottleneck."""
    stats, actors = trainer.stats(), parts.actors.stats()
    summary: dict[str, Any] = {name: getattr(stats, name) for name in FIGURES}
    summary["final_score"] = stats.last_score
    summary["actors"] = [_of_actor(each) for each in actors]
    actor_seconds = summed(each.seconds for each in actors)
    summary["seconds"] = {
        name: {section: round(spent_s, 3) for section, spent_s in seconds.items() if spent_s > 0}
        for name, seconds in (("learner", stats.seconds), ("actors", actor_seconds))
    }
    if not failed:  # the bottleneck of a run that broke is what broke it
        summary["bottleneck"] = bottleneck_advice(
            stats.seconds,
            in_learner_thread=effective.in_learner_thread,
            actor_threads=effective.actor_threads,
            paced=effective.config.trainer.samples_per_opt_step is not None,
        )
    return summary


def _of_actor(stats: ActorStats) -> dict[str, Any]:
    found = asdict(stats)
    del found["seconds"]  # an estimate, reported for all actors together
    return found | {"samples_per_sec": stats.samples_per_sec}


def summary_lines(summary: Mapping[str, Any]) -> Iterator[str]:
    """What `run_summary` found, one sentence per line."""
    for each in summary["actors"]:
        yield (
            f"actor {each['actor_id']}: {each['env_steps']:,} env steps, {each['samples']:,} "
            f"samples, {each['samples_per_sec']:,.1f} samples/s, {each['duration_s']:,.1f} s, "
            f"{counted(each['restarts'], 'restart')}, "
            f"{counted(each['lost_samples'], 'lost sample')}"
        )
    yield (
        f"trainer: {counted(summary['opt_steps'], 'update')}, "
        f"{counted(summary['samples_total'], 'sample')}, "
        f"{counted(summary['evaluations'], 'evaluation')}, {summary['duration_s']:,.1f} s, "
        f"{counted(summary['saves'], 'checkpoint')}"
    )
    for name, seconds in summary["seconds"].items():
        total_s = sum(seconds.values())
        longest_first = sorted(seconds.items(), key=lambda each: -each[1])
        shares = [f"{section} {100 * each_s / total_s:.1f} %" for section, each_s in longest_first]
        if shares:
            yield f"{name} time: {', '.join(shares)}"
    if summary.get("bottleneck"):
        yield f"bottleneck: {summary['bottleneck']}"
