"""An actor: a policy in its environments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from border_cli.actor_manager.laps import ACT, BLOCKED, ENV_STEP, PROCESS, SEND, Laps
from border_cli.actor_manager.proxy import ReplayBufferProxy
from border_cli.actor_manager.weights import WeightSource
from border_cli.core.errors import CheckpointError
from border_cli.core.interfaces import Env, Policy, StepProcessor
from border_cli.core.timing import Clock
from border_cli.core.types import Array, Beat, State, Step


class Actor:
    """Acts one step at a time; who calls `step`, and how often, is not its business.

    Threads put `step` in a loop; the serial manager and the tests call it directly. It touches
    nothing but what it was given, so two actors share no state. Owned by the thread that made it.

    With `resumed`, the `state_dict` of an actor that had the same seeds, it goes on where that one
    stood; its counters of steps and seconds begin at 0.
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
        resumed: Mapping[str, Any] | None = None,
        beat: Beat = lambda: True,
    ) -> None:
        self._env = env
        self._policy = policy
        self._step_processor = step_processor
        self._weights = weights
        self._version = 0
        self._opt_steps = 0
        self._laps = Laps(clock)
        self.proxy = proxy
        self._returns = proxy.returns
        # Asked once: most policies remember nothing, and every step would pay for the question.
        self._tells = self._returns is not None or type(policy).forget is not Policy.forget
        self.env_steps = 0
        self.restarted_episodes = 0  # that could not be continued and began anew
        policy.bind_thread()
        if resumed is None:
            self._obs = env.reset(env_seed)
        else:
            self._obs = self._resume(env_seed, resumed, beat)

    def _resume(self, env_seed: int, state: Mapping[str, Any], beat: Beat) -> Array:
        """Restores all that it owns; returns what to act on next. [N, …]"""
        try:
            self._opt_steps = int(state["opt_steps"])
            self._policy.load_state_dict(state["policy"])
            self._step_processor.load_state_dict(state["step_processor"])
            self.proxy.load_state_dict(state["proxy"])
            env_state = state["env"]
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError(f"the saved state of an actor is invalid: {error!r}") from error
        obs, anew = self._env.resume(env_seed, env_state, beat)
        self._policy.forget(anew)
        self._step_processor.forget(anew)
        if self._returns is not None:
            self._returns.forget(anew)
        self.restarted_episodes = len(anew)
        return obs

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
        if self._tells:
            self._tell(step)
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

    def _tell(self, step: Step) -> None:
        """Tells those who remember where episodes end."""
        if step.episodes or step.moved is not None:
            self._policy.forget(step.begun)
        if self._returns is not None:
            self._returns.see(step.reward, step.terminated | step.truncated, step.moved)

    @property
    def seconds(self) -> list[float]:
        """Where its time went so far, by section of `ACTOR_SECTIONS`."""
        seconds = list(self._laps.seconds)
        seconds[SEND] += self.proxy.sent_s
        seconds[BLOCKED] += self.proxy.blocked_s
        return seconds

    def state_dict(self) -> State:
        """Where it stands between two steps; nothing in it is written again."""
        return {
            "env": self._env.state_dict(),
            "policy": self._policy.state_dict(),
            "step_processor": self._step_processor.state_dict(),
            "proxy": self.proxy.state_dict(),
            "opt_steps": self._opt_steps,
        }

    def flush(self) -> None:
        """Sends the partly filled proxy."""
        self.proxy.flush(self._opt_steps)

    def close(self) -> None:
        """Frees the environments."""
        self._env.close()
