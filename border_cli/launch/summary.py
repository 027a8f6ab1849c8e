"""The outcome of a run: the figures in `run.json`, and the result for Python callers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from border_cli.core.interfaces import ActorStats, Agent
from border_cli.core.output import TrainerStats
from border_cli.core.timing import shares, sum_seconds
from border_cli.launch.effective import EffectiveSettings
from border_cli.recorder import figures
from border_cli.settings.run import ReplayRatioConfig
from border_cli.trainer.trainer import LearnerParts, Trainer

UPDATE_WEIGHT = 0.5  # of the share of updates, because they are the actual work

# The description of each section, and the setting that shortens it.
SECTIONS = {
    "wait": ("learner waiting for samples", "more actors (actor_manager.num_actors)"),
    "push": ("storing samples in the replay buffer", "a larger actor_manager.n_buffer"),
    "sample": ("sampling batches from the replay buffer", "a smaller agent.batch_size"),
    "update": ("learner updates", "a smaller agent.batch_size"),
    "priorities": ("updating priorities", "replay_buffer=uniform"),
    "evaluate": ("evaluations", "a longer trainer.eval_interval"),
    "save": ("saving checkpoints", "a longer trainer.save_interval"),
    "record": ("recording metrics", "a longer trainer.record_interval"),
    "sync": ("copying weights to the actors", "a longer trainer.sync_interval"),
    "other": ("startup, shutdown and the loop itself", "a longer run for a better estimate"),
}
STARVED = ("update", "sample", "priorities", "push")  # slowed down by actor threads

FIGURES = (
    *("best_score", "best_opt_steps", "opt_steps", "env_steps", "samples_total"),
    *("evaluations", "duration_s"),
    "out_of_bounds",
    *("saves", "saves_skipped", "save_failures", "recorder_failures"),
    "recorders_switched_off",
)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Result:
    """The trained agent, the statistics and the run directory of a finished run."""

    agent: Agent
    best_score: float  # minus infinity without an evaluation
    actor_stats: list[ActorStats]
    trainer_stats: TrainerStats
    run_dir: Path
    exit_reason: str  # as in `run.json`, such as "max_opt_steps reached"

    def __repr__(self) -> str:
        score = figures.score(self.best_score)
        return f"<Result: {self.exit_reason}; best score {score}; run directory {self.run_dir}>"


def run_summary(
    effective: EffectiveSettings, trainer: Trainer, parts: LearnerParts, *, failed: bool
) -> dict[str, Any]:
    """Returns scores, counters, failures, times and the bottleneck."""
    stats, actors, config = trainer.stats(), parts.actors.stats(), effective.config.trainer
    summary: dict[str, Any] = {name: getattr(stats, name) for name in FIGURES}
    summary["final_score"] = stats.last_score
    summary["actors"] = [_summarize_actor(actor) for actor in actors]
    actor_seconds = sum_seconds(actor.seconds for actor in actors)
    summary["seconds"] = {
        name: {section: round(spent_s, 3) for section, spent_s in seconds.items() if spent_s > 0}
        for name, seconds in (("learner", stats.seconds), ("actors", actor_seconds))
    }
    if not failed:  # of no interest if the run failed
        summary["bottleneck"] = bottleneck_advice(
            stats.seconds,
            in_learner_thread=effective.actors.in_learner_thread,
            actor_threads=effective.backend == "thread",
            paced=isinstance(config, ReplayRatioConfig) and config.samples_per_opt_step is not None,
            on_policy=effective.config.agent.on_policy,
            unlimited_episodes=parts.episode_limit.steps is not None,
        )
    return summary


def _summarize_actor(stats: ActorStats) -> dict[str, Any]:
    summary = asdict(stats)
    del summary["seconds"]  # an estimate, reported for all actors together
    return summary | {"samples_per_sec": stats.samples_per_sec}


def bottleneck_advice(
    learner: Mapping[str, float],
    *,
    in_learner_thread: bool,
    actor_threads: bool,
    paced: bool,
    on_policy: bool = False,
    unlimited_episodes: bool = False,
) -> str | None:
    """Names the section that took most of the learner's time (the time of updates counts half), and
    a setting that would shorten it.

    `learner`: seconds per section; `unlimited_episodes`: whether evaluation episodes have no limit
    except one that the run chose. Returns None if no time has passed.
    """
    spent = shares(learner)
    if not spent:
        return None
    weighted = spent | {"update": UPDATE_WEIGHT * spent.get("update", 0.0)}
    largest = max(weighted, key=lambda section: weighted[section])
    name, remedy = SECTIONS[largest]
    if largest == "wait" and in_learner_thread:
        remedy = (
            "a higher env.num_envs, or actor_manager=process: actors share the learner's thread"
        )
    elif largest == "wait" and actor_threads:
        remedy = "actor_manager=process if env steps use the CPU, and more actors if they wait"
    elif largest in STARVED and actor_threads and not paced:
        remedy = "actor_manager=process: actor threads hold the learner's interpreter lock"
    elif largest == "update" and on_policy:
        remedy = "fewer replay_buffer.n_epochs, or a larger agent.batch_size"
    elif largest == "evaluate" and unlimited_episodes:
        remedy = "a smaller evaluator.max_episode_steps: the environment has no time limit"
    return f"{name} ({100 * spent[largest]:.0f} %). Try {remedy}."
