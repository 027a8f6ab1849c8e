"""Writes the folder of an exported policy: whole, verified, or not at all.

What writes a format is imported by the function that does.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from border_cli import __version__
from border_cli.agent.learner_config import LearnerConfig
from border_cli.agent.policies import NetworkPolicy
from border_cli.agent.torch_agent import TorchAgent
from border_cli.core.interfaces import Agent, Evaluation, Policy
from border_cli.core.raw_values import batch_of
from border_cli.core.spaces import RawDict, RawObservation, has_masks, row_nbytes, split_mask
from border_cli.core.stop import StopFlag
from border_cli.core.types import Array, Snapshot, map_array, num_rows
from border_cli.errors import ConfigError, MissingPackage
from border_cli.export.card import card
from border_cli.export.choice import GreedyChoice
from border_cli.export.form import PolicyForm
from border_cli.export.verify import OBSERVATION, TOLERANCE, verified
from border_cli.launch.effective import EffectiveSettings
from border_cli.launch.play import play
from border_cli.nn.numpy_network import TWINS
from border_cli.run.exported import (
    EXTRA,
    MODEL,
    POLICY_NPZ,
    POLICY_ONNX,
    VERIFICATION,
    opened_folder,
)
from border_cli.run.layout import partial_of
from border_cli.settings.networks import Matmul, MatmulPrecision
from border_cli.settings.run import RunConfig
from border_cli.system.files import POLICY_JSON, checksum, settings_of, write_json

MOST_KEPT, MOST_NBYTES = 256, 2**22  # observations for the verification


def form_of(agent: Agent, policy: Policy, name: str, opt_steps: int) -> PolicyForm:
    """What `policy.json` says of the policy of an agent, which messages call by this name.

    Raises ConfigError where its greedy action is none that `policy.json` can describe.
    """
    greedy = policy.greedy_form if isinstance(policy, NetworkPolicy) else None
    if not isinstance(agent, TorchAgent) or not isinstance(policy, NetworkPolicy) or greedy is None:
        raise ConfigError(
            f"agent={name} cannot be exported: its policy, {type(policy).__name__}, does not say "
            "how its greedy action follows from a network (greedy_form of a NetworkPolicy)"
        )
    twin = next((each for each, kind in TWINS.items() if type(policy.network) is kind), None)
    if twin is None:
        raise ConfigError(
            f"agent={name} cannot be exported: its acting network is a "
            f"{type(policy.network).__name__}; known: "
            f"{', '.join(each.__name__ for each in TWINS.values())}"
        )
    if agent.spec.raw is None:
        raise ConfigError(
            f"env.id={agent.spec.id} cannot be exported: it does not tell its spaces as Gymnasium "
            "has them (EnvSpec.raw)"
        )
    return PolicyForm(
        agent=name,
        opt_steps=opt_steps,
        spec=agent.spec,
        architecture=agent.architecture,
        twin=twin,
        twin_form=policy.network.form,
        greedy=greedy,
    )


def in_float32(config: RunConfig) -> RunConfig:
    """The settings without what computes in less on some processors."""
    agent = config.agent
    if isinstance(agent, LearnerConfig):
        agent = replace(agent, matmul=Matmul.mkl, matmul_precision=MatmulPrecision.highest)
    return replace(config, agent=agent)


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """What was written."""

    evaluation: Evaluation  # of fresh episodes
    lines: list[str]  # of the verification


class Watched(Policy):
    """A policy, and some of the observations that it acts on: any of them equally often."""

    def __init__(self, policy: Policy, most: int) -> None:
        self._policy, self._most = policy, most
        self._rng = np.random.default_rng(0)
        self._seen = 0
        self.kept: list[Array] = []  # rows, without an axis for N

    def load_snapshot(self, snapshot: Snapshot) -> None:
        self._policy.load_snapshot(snapshot)

    def act(self, obs: Array, *, explore: bool) -> NDArray[Any]:
        for i in range(num_rows(obs)):
            self._seen += 1
            place = int(self._rng.integers(self._seen))  # Vitter's algorithm R
            if len(self.kept) < self._most:
                place = len(self.kept)
                self.kept.append(obs)
            if place < self._most:
                self.kept[place] = map_array(partial(_row, i), obs)
        return self._policy.act(obs, explore=explore)


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """A saved model on its way to a folder."""

    run_dir: Path
    effective: EffectiveSettings
    agent: TorchAgent
    policy: NetworkPolicy
    form: PolicyForm
    onnx: bool  # whether there is to be a policy.onnx
    film: bool  # … a film of one more episode

    def refuse_missing(self) -> None:
        """Raises MissingPackage before anything is played."""
        try:
            import safetensors  # noqa: F401
        except ImportError as error:
            raise MissingPackage("border-export", EXTRA) from error
        if self.onnx:
            from border_cli.export.onnx import refuse_missing

            refuse_missing()

    def write(
        self, place: Path, stop: StopFlag, *, seed: int, about: Mapping[str, Any]
    ) -> Exported:
        """Plays, writes, verifies; `place` is there at the end or not at all."""
        partial = partial_of(place)
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        try:
            watched = Watched(self.policy, self._most_kept())
            evaluation = play(self.effective, watched, stop, seed=seed, rounds=1)
            rows = _stacked(watched.kept)
            write_formats(partial, self.agent, self.policy, self.form, rows, onnx=self.onnx)
            if self.film:
                one = self.effective.with_episodes(1)
                play(one, self.policy, stop, seed=seed, rounds=1, video=partial / "film.mp4")
            shutil.copyfile(settings_of(self.run_dir), partial / settings_of(self.run_dir).name)
            text = card(self.form, evaluation, {**about, "seed": seed}, partial)
            (partial / "README.md").write_text(text, encoding="utf-8")
            seal(partial, self.agent, self.form)
            lines = verified(opened_folder(partial))
            if place.exists():
                place.rmdir()  # an empty one
            partial.rename(place)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
        return Exported(evaluation=evaluation, lines=lines)

    def _most_kept(self) -> int:
        return max(2, min(MOST_KEPT, MOST_NBYTES // row_nbytes(self.form.spec.observation)))


def write_formats(
    folder: Path,
    agent: TorchAgent,
    policy: NetworkPolicy,
    form: PolicyForm,
    rows: Array,
    *,
    onnx: bool,
) -> None:
    """The weights, what acts with them, and what it does on these observations. [N, …]"""
    from safetensors.numpy import save_file

    save_file(weights_of(agent), folder / MODEL)
    if not form.architecture.acts_in_torch:
        arrays: Any = agent.snapshot().arrays
        np.savez(folder / POLICY_NPZ, **arrays)
    if onnx:
        from border_cli.export.onnx import write_onnx

        write_onnx(agent, form, folder / POLICY_ONNX)
    np.savez_compressed(folder / VERIFICATION, **_verification(policy, form, rows))


def _verification(policy: NetworkPolicy, form: PolicyForm, rows: Array) -> dict[str, Any]:
    """Observations as the environment gives them, and what the policy does on them."""
    spec, choice = form.spec, GreedyChoice(form)
    assert spec.raw is not None
    action = policy.act(rows, explore=False)
    seen = split_mask(rows)[0] if has_masks(spec.observation) else rows
    values = choice.values(policy.network(seen))
    gaps = np.diff(np.sort(values, axis=1), axis=1).min(axis=1, initial=np.inf)
    near = 10 * TOLERANCE * np.maximum(1, np.abs(values).max(axis=1))
    return {
        **_raw(spec.raw.observation, rows),
        "action": batch_of(spec.raw.action)(action),
        "values": values,
        # Between values that are so close rounding may decide.
        "decided": (gaps > near) | (form.greedy.kind == "tanh"),
    }


def seal(folder: Path, agent: TorchAgent, form: PolicyForm) -> None:
    """Completes the folder: `policy.json` names all that is there."""
    files = {each.name: checksum(each) for each in sorted(folder.iterdir())}
    content = {
        **form.as_json(),
        "border_cli": __version__,
        "semantics": agent.config.semantic_settings,
        "files": files,
    }
    write_json(folder / POLICY_JSON, content)


def weights_of(agent: TorchAgent) -> dict[str, NDArray[Any]]:
    """All that `load_weights` takes, flat: `online.mlp.layers.0.weight`."""
    found = {}
    for part, module in agent.learned_modules().items():
        for name, tensor in module.state_dict().items():
            found[f"{part}.{name}"] = np.array(tensor.detach().cpu().numpy(), order="C")
    return found


def _row(i: int, values: NDArray[Any]) -> NDArray[Any]:
    return np.array(values[i])


def _stacked(kept: list[Array]) -> Array:
    """[N, …] out of N rows."""
    parts: list[Any] = list(kept)
    if isinstance(parts[0], dict):
        return {key: np.stack([each[key] for each in parts]) for key in parts[0]}
    return np.stack(parts)


def _raw(space: RawObservation, rows: Array) -> dict[str, NDArray[Any]]:
    """What the environment gave."""
    if isinstance(space, RawDict):
        assert isinstance(rows, dict)
        parts = {key: batch_of(part)(rows[key]) for key, part in space.parts.items()}
        return {f"{OBSERVATION}.{key}": part for key, part in parts.items()}
    assert not isinstance(rows, dict)
    return {OBSERVATION: batch_of(space)(rows)}
