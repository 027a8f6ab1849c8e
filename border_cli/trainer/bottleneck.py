"""Bottleneck advice: what took most of the learner's time, and a setting that reduces it."""

from __future__ import annotations

from collections.abc import Mapping

from border_cli.core.timing import shares

UPDATES_COUNT = 0.5  # of their share: they are the work itself, which cannot vanish

# Of each section: its name, and the setting that reduces it.
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
STARVED = ("update", "sample", "priorities", "push")  # by actor threads without a rate limit


def bottleneck_advice(
    learner: Mapping[str, float], *, in_learner_thread: bool, actor_threads: bool, paced: bool
) -> str | None:
    """Names what took most of the learner's time, and a setting that would reduce it.

    `learner`: seconds per section. None where no time passed.
    """
    spent = shares(learner)
    if not spent:
        return None
    weighted = spent | {"update": UPDATES_COUNT * spent.get("update", 0.0)}
    largest = max(weighted, key=lambda section: weighted[section])
    name, remedy = SECTIONS[largest]
    if largest == "wait" and in_learner_thread:
        remedy = "a higher env.num_envs: actors share its thread"
    elif largest == "wait" and actor_threads:
        remedy = "actor_manager=process if env steps compute, and more actors if they wait"
    elif largest in STARVED and actor_threads and not paced:
        remedy = "actor_manager=process: actor threads take its interpreter lock"
    return f"{name} ({100 * spent[largest]:.0f} %). Try {remedy}."
