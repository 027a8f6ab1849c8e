"""What `run.json` says of how a run went."""

from __future__ import annotations

from typing import Any

from border_cli.assemble import Assembly
from border_cli.core.config import RunConfig
from border_cli.core.errors import Interrupted, reason_of
from border_cli.core.threads import available_cores
from border_cli.core.timing import summed
from border_cli.trainer.bottleneck import bottleneck

FIGURES = (
    *("best_score", "best_opt_steps", "opt_steps", "env_steps", "samples_total"),
    "out_of_bounds",
    *("saves", "saves_skipped", "save_failures", "recorder_failures"),
)


def status_of(error: BaseException) -> tuple[str, str]:
    """Status and reason of a run that this ended."""
    if isinstance(error, Interrupted | KeyboardInterrupt):
        return "interrupted", str(error) or "KeyboardInterrupt"
    return "failed", reason_of(error)


def facts_of(config: RunConfig, assembly: Assembly, *, failed: bool) -> dict[str, Any]:
    """Scores, counters, failures, and what held the run up."""
    stats = assembly.trainer.stats()
    facts: dict[str, Any] = {name: getattr(stats, name) for name in FIGURES}
    facts["final_score"] = stats.last_score
    if not failed:  # what held up a run that broke is what broke it
        facts["bottleneck"] = bottleneck(
            config,
            learner=stats.seconds,
            actors=summed(each.seconds for each in assembly.actors.stats()),
            device=assembly.agent.device_name,
            cores=available_cores(),
            threads=assembly.agent.num_threads,
        )
    return facts
