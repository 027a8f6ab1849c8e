"""What may hold a run up, in words, and which settings would move it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from border_cli.core.config import RunConfig
from border_cli.registry import ACTOR_MANAGERS, REPLAY_BUFFERS, TRAINERS

MANY_ENVS = 8  # side by side in one actor act about four times as many steps as one
IDLE = 0.5  # of the actors' time; from there on they could do more
STARVING = 0.25  # free actor threads at a time, from which on they take the learner's turns

PLACES = {
    "act": "acting",
    "env_step": "in env steps",
    "process": "processing steps",
    "send": "sending samples",
    "blocked": "blocked",
}


@dataclass(frozen=True, slots=True)
class Loss:
    """What took the time, and the settings that would reduce it."""

    what: str
    remedies: list[str]

    def __str__(self) -> str:
        return f"{self.what}. Try {', or '.join(self.remedies)}."


class Facts:
    """What the sentences follow from."""

    def __init__(
        self,
        config: RunConfig,
        *,
        learner: Mapping[str, float],
        actors: Mapping[str, float],
        device: str,
        cores: int,
        threads: int,
    ) -> None:
        self.config = config
        self.learner = learner  # shares of the learner's time
        self.actors = actors  # shares of the actors' time; empty where nobody measured
        self.on_cpu = device == "cpu"
        self.cores = cores
        self.threads = threads  # of an update
        self.actor_manager = ACTOR_MANAGERS.entry_of(config.actor_manager).name
        self.sync: bool = TRAINERS.load(config.trainer).actors_in_turn
        self.offline = config.trainer.offline
        alone = self.offline or self.actor_manager == "serial"
        self.in_turn = self.sync or alone  # nobody acts but the learner's own thread
        self.blocked = actors.get("blocked", 0.0)
        running = (1 - self.blocked) * config.actor_manager.num_actors  # threads at a time
        free = config.trainer.samples_per_opt_step is None and not self.in_turn
        self.starves = free and self.actor_manager == "thread" and running >= STARVING
        self.larger_messages = (
            f"a larger actor_manager.n_buffer (now {config.actor_manager.n_buffer:,})"
        )
        num_envs = config.env.num_envs
        self.more_envs = f"env.num_envs={MANY_ENVS if num_envs < MANY_ENVS else 2 * num_envs}"


def waiting(facts: Facts, share: str) -> Loss:
    """Samples did not come fast enough."""
    what = f"learner waiting for samples ({share})"
    more_actors = "more actors (actor_manager.num_actors)"
    main = _main(facts.actors)
    if main:
        spent = f"{100 * facts.actors[main]:.0f} % of their time {PLACES[main]}"
        what += f"; the actors spent {spent}"
    if main == "blocked":  # both wait, at different times
        short = "a longer run (this one is mostly startup and trainer.warmup_period)"
        return Loss(what, [short, f"{facts.larger_messages} if samples arrive in bursts"])
    if main == "send":
        return Loss(what, [facts.larger_messages, more_actors])
    if main in ("act", "process"):
        return Loss(what, [facts.more_envs, more_actors])
    if main == "env_step":
        computing = None
        if facts.actor_manager == "thread":  # which share one interpreter lock
            computing = f"actor_manager=process or {facts.more_envs} if they compute"
        elif facts.config.actor_manager.num_actors >= facts.cores:
            computing = f"{facts.more_envs} if they compute"
        if computing:
            return Loss(what, [f"{more_actors} if env steps wait", computing])
    return Loss(what, [more_actors, facts.more_envs])


def acting(facts: Facts, share: str) -> Loss:
    """The learner's own thread steps the actors: what looks like waiting is their work."""
    main = _main({name: each for name, each in facts.actors.items() if name != "blocked"})
    where = f", mostly {PLACES[main]}" if main else ""
    parallel = "trainer=async" if facts.sync else "actor_manager=process"
    return Loss(
        f"acting in the learner thread ({share}){where}",
        [facts.more_envs, f"{parallel} (actors run in parallel, but not bit-reproducible)"],
    )


def updating(facts: Facts, share: str) -> Loss:
    """The learner did its work."""
    what = f"learner updates ({share})"
    idle = facts.blocked >= IDLE
    if facts.in_turn:
        return Loss(what, _faster_updates(facts, idle_cores=True))
    ratio = facts.config.trainer.samples_per_opt_step
    remedies = _faster_updates(facts, idle_cores=idle)
    if idle:
        what += f"; the actors were blocked {100 * facts.blocked:.0f} % of their time"
        setting = f"a higher trainer.samples_per_opt_step (now {ratio})"
        cheap = f"{setting}; cheap, since the actors are idle"
        remedies += [cheap] if ratio is not None else []
    return Loss(what, remedies)


def starving(facts: Facts, share: str) -> Loss:  # noqa: ARG001 - the same whatever they do
    """Actor threads without a pace leave the learner 2 % of its speed, in whatever it does."""
    return Loss(
        f"learner slowed down by actor threads (busy {share}): they share its interpreter lock "
        "and run without a rate limit",
        ["actor_manager=process", "a rate limit (trainer.samples_per_opt_step=1)"],
    )


def _faster_updates(facts: Facts, *, idle_cores: bool) -> list[str]:
    """Not every agent has every setting; on CPUs to compile brings less than it costs."""
    agent = facts.config.agent
    remedies = [f"a smaller agent.batch_size (now {agent.batch_size:,})"]
    if not facts.on_cpu:
        compiles = getattr(agent, "compile", None)
        return [*remedies, "agent.compile=true"] if compiles is False else remedies
    if idle_cores and facts.cores > 1 and facts.threads == 1 and hasattr(agent, "num_threads"):
        remedies.append(f"agent.num_threads={facts.cores}")
    if facts.config.device == "cpu":  # auto would have found a GPU
        remedies.append("device=cuda")
    return remedies


def drawing(facts: Facts, share: str) -> Loss:
    """The replay buffer was slow to give batches or to take priorities."""
    smaller = f"a smaller agent.batch_size (now {facts.config.agent.batch_size:,})"
    slow = REPLAY_BUFFERS.entry_of(facts.config.replay_buffer).name == "prioritized"
    remedies = [smaller, "replay_buffer=uniform"] if slow else [smaller]
    return Loss(f"sampling batches from the replay buffer ({share})", remedies)


def pushing(facts: Facts, share: str) -> Loss:
    """The replay buffer was slow to take rows."""
    what = f"storing samples in the replay buffer ({share})"
    if facts.sync:  # each of its messages has one step
        return Loss(what, ["trainer=async", facts.more_envs])
    return Loss(what, [facts.larger_messages, "a lower trainer.samples_per_opt_step"])


def evaluating(facts: Facts, share: str) -> Loss:
    """Evaluations held the learner up."""
    interval, evaluator = facts.config.trainer.eval_interval, facts.config.evaluator
    fewer = f"fewer evaluator.num_episodes (now {evaluator.num_episodes:,})"
    remedies = [f"a longer trainer.eval_interval (now {interval:,})", fewer]
    if not evaluator.background and not facts.in_turn:  # which evaluates in line in any case
        remedies.append("evaluator.background=true")
    # Without an interval there was only the one at the end.
    return Loss(f"evaluations ({share})", remedies if interval else [fewer])


def saving(facts: Facts, share: str) -> Loss:
    """Checkpoints held the learner up."""
    interval, every_s = facts.config.trainer.save_interval, facts.config.trainer.save_every_s
    return Loss(
        f"saving checkpoints ({share})",
        [
            *([f"a longer trainer.save_interval (now {interval:,})"] if interval else []),
            *([f"a longer trainer.save_every_s (now {every_s:g})"] if every_s is not None else []),
            "fewer evaluations (trainer.eval_interval): each new best model is saved",
        ],
    )


def recording(facts: Facts, share: str) -> Loss:
    """Recorders and the panel held the learner up."""
    interval = facts.config.trainer.record_interval
    longer = f"a longer trainer.record_interval (now {interval:,})"
    return Loss(f"recording metrics ({share})", [longer])


def publishing(facts: Facts, share: str) -> Loss:
    """Copies of the weights for the actors held the learner up."""
    rarer = [f"a longer trainer.sync_interval (now {facts.config.trainer.sync_interval:,})"]
    remedies = ["trainer=async", facts.more_envs] if facts.sync else rarer  # sync: every round
    return Loss(f"copying weights to the actors ({share})", remedies)


def looping(facts: Facts, share: str) -> Loss:  # noqa: ARG001 - no setting moves it
    """Neither the updates nor anything that was done for them."""
    what = f"startup, shutdown and the loop itself ({share})"
    return Loss(what, ["a longer run for a better estimate"])


def _main(seconds: Mapping[str, float]) -> str:
    """The section that took most; nothing where nobody measured."""
    return max(seconds, key=lambda each: seconds[each], default="")
