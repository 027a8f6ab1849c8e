"""Bottleneck advice: what took most of the learner's time, and a setting that reduces it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from border_cli.core.config import RunConfig
from border_cli.core.timing import shares

IDLE = 0.5  # share of the actors' time that they are blocked; from there on they could do more
LONG_S = 2e-3  # of an update, whose products are then large enough to be shared by threads
UPDATES_COUNT = 0.5  # of their share: they are the work itself, which cannot vanish

# Of each section: its name, and the setting that reduces it where no row of ADVICE applies.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeUse:
    """Where the time of learner and actors went, and the settings in effect."""

    config: RunConfig
    learner: Mapping[str, float]  # seconds per section
    actors: Mapping[str, float]  # seconds per section; empty where it was not measured
    device: str  # of the updates
    cores: int
    threads: int  # of an update
    opt_steps: int
    in_learner_thread: bool  # the actors run there, or there are none
    actor_threads: bool  # the actors run in threads of their own

    @property
    def idle(self) -> bool:
        """Whether the actors could make more samples."""
        return self.in_learner_thread or shares(self.actors).get("blocked", 0.0) >= IDLE

    @property
    def paced(self) -> bool:
        return self.config.trainer.samples_per_opt_step is not None

    @property
    def no_free_core(self) -> bool:
        return self.config.actor_manager.most_actors >= self.cores

    @property
    def threads_would_help(self) -> bool:
        """Whether an update is long enough to be shared, and a core free to share it."""
        long = self.learner["update"] >= LONG_S * max(1, self.opt_steps)
        known = hasattr(self.config.agent, "num_threads")
        return known and long and self.idle and self.cores > 1 and self.device == "cpu"


class Advice(NamedTuple):
    """A remedy where one of the sections took most of the time, and the condition holds."""

    sections: tuple[str, ...]
    applies: Callable[[TimeUse], bool]
    remedy: str


STARVED = ("update", "sample", "priorities", "push")  # by actor threads without a limit


def _starves(use: TimeUse) -> bool:
    """Such threads leave the learner 2 % of its speed, in every section."""
    return use.actor_threads and not use.paced and not use.in_learner_thread


ADVICE = (  # the first that applies is given
    Advice(
        ("wait",),
        lambda use: use.in_learner_thread,
        "a higher env.num_envs: actors share its thread",
    ),
    Advice(("wait",), lambda use: use.idle, "a longer run: both waited, as they do at its start"),
    Advice(
        ("wait",),
        lambda use: use.actor_threads,
        "actor_manager=process if env steps compute, and more actors if they wait",
    ),
    Advice(
        ("wait",),
        lambda use: use.no_free_core and getattr(use.config.actor_manager, "nice", 0) > 0,
        "a higher env.num_envs, or actor_manager.nice=0 if other programs need the cores",
    ),
    Advice(("wait",), lambda use: use.no_free_core, "a higher env.num_envs: no core is free"),
    Advice(STARVED, _starves, "actor_manager=process: actor threads take its interpreter lock"),
    Advice(
        ("update",),
        lambda use: use.device != "cpu" and getattr(use.config.agent, "compile", None) is False,
        "agent.compile=true",
    ),
    Advice(
        ("update",),
        lambda use: use.threads > 1,
        "agent.num_threads=1 if others need the cores",
    ),
    Advice(
        ("update",),
        lambda use: use.threads_would_help,
        "agent.num_threads=2 if nothing else needs the cores",
    ),
    Advice(
        ("update",),
        lambda use: use.paced and use.idle and not use.in_learner_thread,
        "a higher trainer.samples_per_opt_step: the actors are idle",
    ),
)


def bottleneck_advice(use: TimeUse) -> str | None:
    """Names what took most of the learner's time, and a setting that would reduce it.

    None where no time passed.
    """
    spent = shares(use.learner)
    if not spent:
        return None
    weighted = spent | {"update": UPDATES_COUNT * spent.get("update", 0.0)}
    largest = max(weighted, key=lambda section: weighted[section])
    name, remedy = SECTIONS[largest]
    for each in ADVICE:
        if largest in each.sections and each.applies(use):
            remedy = each.remedy
            break
    return f"{name} ({100 * spent[largest]:.0f} %). Try {remedy}."
