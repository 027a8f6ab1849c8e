"""States of the DeepMind Control Suite, fitted to the observations of a recorded episode.

EnvPool returns no states. `restore_start` fits the positions, the velocities and the numbers that a
task draws per episode, such as the position of its target, by least squares, so that dm_control
returns the observations of the first transitions. From there actions can be replayed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

FITTED = 2  # transitions; one action alone does not determine the gains of point_mass-hard
STARTS = 30  # random states from which a fit may begin
EVALUATIONS = 20  # at most, per fit
ENOUGH = 1e-6  # norm of all differences from the observations that are fitted
DRAWN = ("body_pos", "body_quat", "geom_pos", "site_pos", "wrap_prm")  # by tasks, in the model


def restore_start(env: Any, episode: Sequence[Any]) -> None:
    """Sets an environment of Shimmy to the state in which a recorded episode began. If no state
    fits, sets the nearest one."""
    # imported late: the other comparisons of a family need neither package
    from scipy.optimize import least_squares

    start = Start(env)
    best: tuple[float, int, NDArray[Any]] = (np.inf, 0, np.zeros(start.size))
    for seed in range(STARTS):
        start.draw(seed)
        numbers, distance = np.zeros(start.size), 0.0
        for count in (0, FITTED):  # a first observation alone is a smooth function of the state
            fit = least_squares(
                start.differences, numbers, args=(episode[0].obs, episode[:count]),
                xtol=1e-15, ftol=1e-15, gtol=1e-15, max_nfev=EVALUATIONS,
            )  # fmt: skip
            numbers, distance = fit.x, np.sqrt(2 * fit.cost)
            if distance > 100 * ENOUGH:
                break
        if count and distance < best[0]:
            best = distance, seed, numbers
        if best[0] < ENOUGH:
            break
    start.draw(best[1])
    start.set(best[2])


class Start:
    """The first state of an episode, as differences from one that dm_control has drawn."""

    def __init__(self, env: Any) -> None:
        self._env, self._physics = env, env.physics
        model = env.physics.model
        arrays = [getattr(model, name).reshape(-1) for name in DRAWN]
        draws = []
        for seed in (0, 1):
            env.reset(seed=seed)
            draws.append([array.copy() for array in arrays])
        changed = [np.flatnonzero(first != second) for first, second in zip(*draws, strict=True)]
        self._drawn = [pair for pair in zip(arrays, changed, strict=True) if len(pair[1])]
        sizes = [model.nv, model.nv, model.na, *(len(places) for _, places in self._drawn)]
        self._ends, self.size = np.cumsum(sizes)[:-1], sum(sizes)

    def draw(self, seed: int) -> None:
        """Draws the state from which the numbers are differences."""
        self._env.reset(seed=seed)
        data = self._physics.data
        self._state = data.qpos.copy(), data.qvel.copy(), data.act.copy()
        self._values = [array[places] for array, places in self._drawn]

    def set(self, numbers: NDArray[Any]) -> None:
        """Sets the environment to a state."""
        from mujoco import mj_integratePos

        moves, velocities, activations, *drawn = np.split(numbers, self._ends)
        positions = self._state[0].copy()
        mj_integratePos(self._physics.model.ptr, positions, moves, 1.0)
        for (array, places), value, change in zip(self._drawn, self._values, drawn, strict=True):
            array[places] = value + change
        with self._physics.reset_context():
            self._physics.data.qpos[:] = positions
            self._physics.data.qvel[:] = self._state[1] + velocities
            self._physics.data.act[:] = self._state[2] + activations

    def differences(
        self, numbers: NDArray[Any], first: dict[str, Any], rows: Sequence[Any]
    ) -> NDArray[Any]:
        """Returns how the observations of a state and its successors differ from recorded ones."""
        self.set(numbers)
        pairs = [(self._env.task.get_observation(self._physics), first)]
        pairs += [(self._env.step(row.action)[0], row.next_obs) for row in rows]
        return np.concatenate(
            [np.ravel(ours[key] - recorded[key]) for ours, recorded in pairs for key in recorded]
        )
