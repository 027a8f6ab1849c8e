"""Bottleneck advice: what took the learner's time, and settings that reduce it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from border_cli.core.config import RunConfig
from border_cli.core.timing import shares

MANY_ENVS = 8  # in one actor make about four times as many steps per second as one
IDLE = 0.5  # share of the actors' time; from there on they could do more
LONG_S = 2e-3  # of an update, whose products are then large enough to be shared by threads
STARVING = 0.25  # actor threads at a time that slow updates down, where they have no rate limit

PLACES = {
    "act": "acting",
    "env_step": "in env steps",
    "process": "processing steps",
    "send": "sending samples",
    "blocked": "blocked",
}


@dataclass(frozen=True, slots=True)
class Advice:
    """What took the time, and the settings that would reduce it."""

    what: str
    remedies: list[str]

    def __str__(self) -> str:
        return f"{self.what}. Try {', or '.join(self.remedies)}."


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeUse:
    """Where the time of learner and actors went, and the settings in effect."""

    config: RunConfig
    learner: Mapping[str, float]  # shares of the learner's time
    actors: Mapping[str, float]  # shares of the actors' time; empty where it was not measured
    device: str  # of the updates
    cores: int
    threads: int  # of an update
    update_s: float  # of one
    in_learner_thread: bool
    actor_threads: bool
    prioritized: bool

    @property
    def synchronous(self) -> bool:
        return self.config.trainer.synchronous

    @property
    def blocked(self) -> float:
        return self.actors.get("blocked", 0.0)

    @property
    def starves(self) -> bool:
        """Whether actor threads without a rate limit take the interpreter lock from the learner."""
        running = (1 - self.blocked) * self.config.actor_manager.most_actors  # threads at a time
        free = self.config.trainer.samples_per_opt_step is None and not self.in_learner_thread
        return free and self.actor_threads and running >= STARVING

    @property
    def larger_messages(self) -> str:
        return f"a larger actor_manager.n_buffer (now {self.config.actor_manager.n_buffer:,})"

    @property
    def higher_priority(self) -> list[str]:
        """For actors in processes, which have a lower one than the learner. Those that are without
        a core seem to be blocked or to work slowly."""
        lowered = getattr(self.config.actor_manager, "nice", 0)
        return ["actor_manager.nice=0 if other programs need the cores"] if lowered else []

    @property
    def more_envs(self) -> str:
        num_envs = self.config.env.num_envs
        return f"env.num_envs={MANY_ENVS if num_envs < MANY_ENVS else 2 * num_envs}"


def _advise_waiting(use: TimeUse, share: str) -> Advice:
    """Samples arrived too slowly."""
    what = f"learner waiting for samples ({share})"
    main = _main(use.actors)
    if main:
        spent = f"{100 * use.actors[main]:.0f} % of their time {PLACES[main]}"
        what += f"; the actors spent {spent}"
    return Advice(what, [*_faster_samples(use, main), *use.higher_priority])


def _faster_samples(use: TimeUse, main: str) -> list[str]:
    """`main` is what the actors do most."""
    more_actors = "more actors (actor_manager.num_actors)"
    if main == "blocked":  # both wait, at different times
        short = "a longer run (this one is mostly startup and trainer.warmup_period)"
        return [short, f"{use.larger_messages} if samples arrive in bursts"]
    if main == "send":
        return [use.larger_messages, more_actors]
    if main in ("act", "process"):
        return [use.more_envs, more_actors]
    if main == "env_step":
        computing = None
        if use.actor_threads:  # which share one interpreter lock
            computing = f"actor_manager=process or {use.more_envs} if they compute"
        elif use.config.actor_manager.most_actors >= use.cores:
            computing = f"{use.more_envs} if they compute"
        if computing:
            return [f"{more_actors} if env steps wait", computing]
    return [more_actors, use.more_envs]


def _advise_acting(use: TimeUse, share: str) -> Advice:
    """The learner's own thread runs the actors: what looks like waiting is their work."""
    main = _main({name: each for name, each in use.actors.items() if name != "blocked"})
    where = f", mostly {PLACES[main]}" if main else ""
    parallel = "trainer=async" if use.synchronous else "actor_manager=process"
    return Advice(
        f"acting in the learner thread ({share}){where}",
        [use.more_envs, f"{parallel} (actors run in parallel, but not bit-reproducible)"],
    )


def _advise_updating(use: TimeUse, share: str) -> Advice:
    """Updates took the time."""
    what = f"learner updates ({share})"
    idle = use.blocked >= IDLE
    if use.in_learner_thread:
        return Advice(what, _faster_updates(use, idle_cores=True))
    ratio = use.config.trainer.samples_per_opt_step
    remedies = _faster_updates(use, idle_cores=idle)
    if idle:
        what += f"; the actors were blocked {100 * use.blocked:.0f} % of their time"
    if ratio is None:  # it never waits for actors, however few samples they make
        remedies += use.higher_priority
    elif idle:
        setting = f"a higher trainer.samples_per_opt_step (now {ratio})"
        remedies.append(f"{setting}; cheap, since the actors are idle")
    return Advice(what, remedies)


def _advise_starving(use: TimeUse, share: str) -> Advice:  # noqa: ARG001 - the same whatever they do
    """Actor threads without a rate limit leave the learner 2 % of its speed, in every section."""
    return Advice(
        f"learner slowed down by actor threads (busy {share}): they share its interpreter lock "
        "and run without a rate limit",
        ["actor_manager=process", "a rate limit (trainer.samples_per_opt_step=1)"],
    )


def _faster_updates(use: TimeUse, *, idle_cores: bool) -> list[str]:
    """Not every agent has every setting; on CPUs to compile brings less than it costs."""
    agent = use.config.agent
    remedies = [f"a smaller agent.batch_size (now {agent.batch_size:,})"]
    if use.device != "cpu":
        compiles = getattr(agent, "compile", None)
        return [*remedies, "agent.compile=true"] if compiles is False else remedies
    if use.threads > 1:  # each waits for all others, so for one that has no core
        remedies.append("agent.num_threads=1 if other programs need the cores")
    elif idle_cores and use.cores > 1 and use.update_s >= LONG_S and hasattr(agent, "num_threads"):
        remedies.append(f"agent.num_threads={use.cores} if nothing else needs the cores")
    if use.config.device == "cpu":  # auto would have found a GPU
        remedies.append("device=cuda")
    return remedies


def _advise_drawing(use: TimeUse, share: str) -> Advice:
    """Batches and their priorities took the time."""
    smaller = f"a smaller agent.batch_size (now {use.config.agent.batch_size:,})"
    remedies = [smaller, "replay_buffer=uniform"] if use.prioritized else [smaller]
    return Advice(f"sampling batches from the replay buffer ({share})", remedies)


def _advise_pushing(use: TimeUse, share: str) -> Advice:
    """Storing transitions took the time."""
    what = f"storing samples in the replay buffer ({share})"
    if use.synchronous:  # each of its messages has one step
        return Advice(what, ["trainer=async", use.more_envs])
    return Advice(what, [use.larger_messages, "a lower trainer.samples_per_opt_step"])


def _advise_evaluating(use: TimeUse, share: str) -> Advice:
    """Evaluations took the time."""
    interval, evaluator = use.config.trainer.eval_interval, use.config.evaluator
    fewer = f"fewer evaluator.num_episodes (now {evaluator.num_episodes:,})"
    remedies = [f"a longer trainer.eval_interval (now {interval:,})", fewer]
    if not evaluator.background and not use.in_learner_thread:  # such runs always evaluate inline
        remedies.append("evaluator.background=true")
    # Without an interval only the last model is evaluated.
    return Advice(f"evaluations ({share})", remedies if interval else [fewer])


def _advise_saving(use: TimeUse, share: str) -> Advice:
    """Checkpoints took the time."""
    interval, every_s = use.config.trainer.save_interval, use.config.trainer.save_every_s
    return Advice(
        f"saving checkpoints ({share})",
        [
            *([f"a longer trainer.save_interval (now {interval:,})"] if interval else []),
            *([f"a longer trainer.save_every_s (now {every_s:g})"] if every_s is not None else []),
            "fewer evaluations (trainer.eval_interval): each new best model is saved",
        ],
    )


def _advise_recording(use: TimeUse, share: str) -> Advice:
    """Recorders and the panel took the time."""
    interval = use.config.trainer.record_interval
    longer = f"a longer trainer.record_interval (now {interval:,})"
    return Advice(f"recording metrics ({share})", [longer])


def _advise_publishing(use: TimeUse, share: str) -> Advice:
    """Copies of the weights for the actors took the time."""
    rarer = [f"a longer trainer.sync_interval (now {use.config.trainer.sync_interval:,})"]
    remedies = ["trainer=async", use.more_envs] if use.synchronous else rarer  # sync: every round
    return Advice(f"copying weights to the actors ({share})", remedies)


def _advise_looping(use: TimeUse, share: str) -> Advice:  # noqa: ARG001 - no setting moves it
    """Neither updates nor anything they need took the time."""
    what = f"startup, shutdown and the loop itself ({share})"
    return Advice(what, ["a longer run for a better estimate"])


def _main(seconds: Mapping[str, float]) -> str:
    """The section that took most; empty where none was measured."""
    return max(seconds, key=lambda each: seconds[each], default="")


@dataclass(frozen=True, slots=True)
class _Part:
    """Sections of the learner's time that the same settings reduce, and the advice for them."""

    sections: tuple[str, ...]
    advise: Callable[[TimeUse, str], Advice]
    weight: float = 1.0

    def share(self, use: TimeUse) -> float:
        return sum(use.learner.get(each, 0.0) for each in self.sections)


WAITING = _Part(("wait",), _advise_waiting)
ACTING = _Part(("wait",), _advise_acting)
STARVED = _Part(("update", "sample", "priorities", "push"), _advise_starving)
WORKING = (
    _Part(("update",), _advise_updating, weight=0.5),  # the work itself, which cannot vanish
    _Part(("sample", "priorities"), _advise_drawing),
    _Part(("push",), _advise_pushing),
)
OTHER = (
    _Part(("evaluate",), _advise_evaluating),
    _Part(("save",), _advise_saving),
    _Part(("record",), _advise_recording),
    _Part(("sync",), _advise_publishing),
    _Part(("other",), _advise_looping),
)


def bottleneck_advice(
    config: RunConfig,
    *,
    learner: Mapping[str, float],
    actors: Mapping[str, float],
    device: str,
    cores: int,
    threads: int,
    opt_steps: int,
    in_learner_thread: bool,
    actor_threads: bool,
    prioritized: bool,
) -> str | None:
    """Names what took most of the learner's time, and settings that would reduce it.

    `learner` and `actors` are seconds per section; `device` is where the `opt_steps` updates were
    computed, on `threads` threads. `in_learner_thread`: the actors run in the learner's thread, or
    there are none. `actor_threads`: they run in threads of their own. None where no time passed.
    """
    use = TimeUse(
        config=config,
        learner=shares(learner),
        actors=shares(actors),
        device=device,
        cores=cores,
        threads=threads,
        update_s=learner.get("update", 0.0) / max(1, opt_steps),
        in_learner_thread=in_learner_thread,
        actor_threads=actor_threads,
        prioritized=prioritized,
    )
    if not use.learner:
        return None
    parts = [
        ACTING if use.in_learner_thread else WAITING,
        *([STARVED] if use.starves else WORKING),
        *OTHER,
    ]
    largest = max(parts, key=lambda part: part.weight * part.share(use))
    return str(largest.advise(use, f"{100 * largest.share(use):.0f} %"))
