"""An actor: a policy in its environments."""

from __future__ import annotations

from border_cli.actor_manager.laps import ACT, BLOCKED, ENV_STEP, PROCESS, SEND, Laps
from border_cli.actor_manager.proxy import ReplayBufferProxy
from border_cli.actor_manager.weights import WeightSource
from border_cli.core.clock import Clock
from border_cli.core.interfaces import Env, Policy, StepProcessor


class Actor:
    """Acts one step at a time; who calls `step`, and how often, is not its business.

    Threads put `step` in a loop; the serial manager and the tests call it directly. It touches
    nothing but what it was given, so two actors share no state. Owned by the thread that made it.
    """

    def __init__(
        self,
        *,
        env: Env,
        env_seed: int,
        policy: Policy,
        step_processor: StepProcessor,
        proxy: ReplayBufferProxy,
        weights: WeightSource,
        clock: Clock,
    ) -> None:
        self._env = env
        self._policy = policy
        self._step_processor = step_processor
        self._weights = weights
        self._version = 0
        self._opt_steps = 0
        self._laps = Laps(clock)
        self.proxy = proxy
        self.env_steps = 0
        policy.bind_thread()
        self._obs = env.reset(env_seed)

    def step(self) -> int:
        """Acts once in each environment with the newest weights; returns the rows it gave."""
        laps = self._laps
        timed = laps.begin()
        newer = self._weights.newer_than(self._version)
        if newer is not None:
            self._version, snapshot = newer
            self._policy.load_snapshot(snapshot)
            self._opt_steps = snapshot.opt_steps

        action = self._policy.act(self._obs, explore=True)  # [N] or [N, A]
        if timed:
            laps.lap(ACT)
        step = self._env.step(action)
        if timed:
            laps.lap(ENV_STEP)
        self._obs = step.act_obs
        env_steps = step.env_steps
        self.env_steps += env_steps
        transitions = self._step_processor.process(step)  # M rows; 0 while a window fills
        away_s = self.proxy.sent_s + self.proxy.blocked_s
        self.proxy.push(
            transitions,
            env_steps=env_steps,
            episodes=step.episodes,
            opt_steps=self._opt_steps,
        )
        if timed:
            laps.lap(PROCESS, less_s=self.proxy.sent_s + self.proxy.blocked_s - away_s)
        return len(transitions)

    @property
    def seconds(self) -> list[float]:
        """Where its time went so far, by section of `ACTOR_SECTIONS`."""
        seconds = list(self._laps.seconds)
        seconds[SEND] += self.proxy.sent_s
        seconds[BLOCKED] += self.proxy.blocked_s
        return seconds

    def flush(self) -> None:
        """Sends the partly filled proxy."""
        self.proxy.flush(self._opt_steps)

    def close(self) -> None:
        """Frees the environments."""
        self._env.close()
