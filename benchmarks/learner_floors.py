"""The baselines of `benchmarks.learner`, measured in the same process before and after a run."""

from __future__ import annotations

from benchmarks.bare import BareLoop, SameKernelsLoop, WrittenOutLoop, random_play
from benchmarks.isolated import Beside, call
from benchmarks.table import Reading

ROWS_STORED = 4_000  # about as many as a run collects
FLOOR_UPDATES = 1_000
ACTOR_S = 1.5
ACTOR = "benchmarks.bare_actor:measure"
FLOORS = {
    "bare": BareLoop,
    "bare_same_kernels": SameKernelsLoop,
    "bare_written_out": WrittenOutLoop,
}


class Floors:
    """Bare learners in the calling thread, and a bare actor in its own process."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        ring = random_play(ROWS_STORED, seed=seed)
        self._loops = {name: loop(ring, ROWS_STORED, seed=seed) for name, loop in FLOORS.items()}
        self.measure(actor=False)  # the first measurement is slow

    def measure(self, *, actor: bool) -> Reading:
        """Measures every baseline alone, one after another."""
        reading: dict[str, float] = {}
        for name, loop in self._loops.items():
            speed = loop.run(FLOOR_UPDATES)
            reading |= {name: speed.updates_per_s, f"{name}_us": speed.learner_us}
        if actor:
            alone = call(ACTOR, seed=self._seed, seconds=ACTOR_S)
            reading |= {"bare_actor": alone["samples_per_s"], "bare_actor_us": alone["actors_us"]}
        return reading

    def both(self, updates: int) -> Reading:
        """Measures a bare learner and a bare actor that run at the same time, independently."""
        with Beside(ACTOR, seed=self._seed, seconds=None) as actor:
            speed = self._loops["bare"].run(updates)
        return {**speed._asdict(), **actor.answer}


def mean(before: Reading, after: Reading) -> Reading:
    """Averages the values that both readings contain."""
    return {name: (before[name] + after[name]) / 2 for name in before if name in after}
