"""Writes the folder of an exported policy. It appears only if it is complete and verified."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from border_cli import __version__
from border_cli.agent.greedy import ActionSelector
from border_cli.agent.learner_config import LearnerConfig
from border_cli.agent.learning_agent import LearningAgent
from border_cli.agent.policies import NetworkPolicy
from border_cli.core.interfaces import Evaluation, Policy
from border_cli.core.raw_values import batch_of
from border_cli.core.spaces import has_masks, split_mask
from border_cli.core.stop import StopFlag
from border_cli.core.types import Array, Snapshot, combine_arrays, map_array, num_rows
from border_cli.errors import ConfigError, MissingPackage
from border_cli.evaluator.film import refuse_no_film
from border_cli.export.card import card
from border_cli.export.form import PolicyForm
from border_cli.export.verify import OBSERVATION, TOLERANCE, verify_export
from border_cli.launch.effective import EffectiveSettings
from border_cli.nn.numpy_network import TWINS
from border_cli.playing.evaluate import play
from border_cli.run.exported import (
    EXTRA,
    FORMAT,
    MODEL,
    POLICY_NPZ,
    POLICY_ONNX,
    VERIFICATION,
    VERSION,
    open_export,
)
from border_cli.run.status import EPISODE_LIMIT
from border_cli.settings.networks import BackendName, Matmul, MatmulPrecision
from border_cli.settings.run import RunConfig
from border_cli.system.files import POLICY_JSON, checksum, write_json

MOST_KEPT = 256  # maximum number of observations in the verification
MOST_WATCHED = 10 * MOST_KEPT  # observations after which no more are recorded to draw these from


def in_float32(config: RunConfig) -> RunConfig:
    """Returns the settings for modules of torch with full float32 precision for matrix products."""
    agent = config.agent
    if isinstance(agent, LearnerConfig):
        agent = replace(
            agent,
            backend=BackendName.torch,
            matmul=Matmul.mkl,
            matmul_precision=MatmulPrecision.highest,
        )
    return replace(config, agent=agent)


def form_of(agent: Any, policy: Any, name: str) -> PolicyForm:
    """Returns the description of an agent's policy for `policy.json`.

    Raises ConfigError if `policy.json` cannot describe its greedy action.
    """
    greedy = policy.greedy_form if isinstance(policy, NetworkPolicy) else None
    if (
        greedy is None
        or not isinstance(agent, LearningAgent)
        or (twin := type(policy.network).__name__) not in TWINS
        or agent.spec.raw is None
    ):
        raise ConfigError(
            f"agent={name} cannot be exported: it must act with a NetworkPolicy that has a "
            f"greedy_form and one of {', '.join(TWINS)}, in an environment that defines its spaces "
            "(EnvSpec.raw)"
        )
    return PolicyForm(
        agent=name,
        opt_steps=agent.opt_steps,
        spec=agent.spec,
        architecture=agent.architecture,
        twin=twin,
        twin_form=policy.network.twin_form,
        greedy=greedy,
    )


def refuse_missing(*, onnx: bool, film: bool) -> None:
    """Raises MissingPackage if a package that the export needs is not installed. Called before
    episodes are played."""
    for package in ("safetensors", *(("onnx", "onnxruntime", "onnxscript") if onnx else ())):
        if find_spec(package) is None:
            raise MissingPackage(f"border-export ({package})", EXTRA)
    if film:
        refuse_no_film(Path("film.mp4"))


class ObservationRecorder(Policy):
    """A policy that records the first observations that it acts on."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self.kept: list[Array] = []  # recorded batches of observations, [N, …]

    def load_snapshot(self, snapshot: Snapshot) -> None:
        self._policy.load_snapshot(snapshot)

    def act(self, obs: Array, *, explore: bool) -> NDArray[Any]:
        if len(self.kept) * num_rows(obs) < MOST_WATCHED:
            self.kept.append(map_array(np.copy, obs))
        return self._policy.act(obs, explore=explore)


def write(
    place: Path,
    effective: EffectiveSettings,
    agent: LearningAgent,
    policy: NetworkPolicy,
    form: PolicyForm,
    stop: StopFlag,
    *,
    settings: Path,
    seed: int,
    onnx: bool,
    film: bool,
    about: Mapping[str, Any],
) -> tuple[Evaluation, list[str]]:
    """Plays episodes, then writes and verifies the folder; `place` exists only after success.

    `settings` is the run's settings file; `about` contains facts about the run for the model card.
    """
    place.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=f".{place.name}-", dir=place.parent) as temporary:
        folder = Path(temporary, place.name)
        folder.mkdir()
        watched = ObservationRecorder(policy)
        evaluation = play(effective, watched, stop, seed=seed, rounds=1)
        rows = combine_arrays(np.concatenate, watched.kept)
        indices = np.random.default_rng(0).permutation(num_rows(rows))[:MOST_KEPT]
        rows = map_array(lambda part: part[indices], rows)
        write_formats(folder, agent, policy, form, rows, onnx=onnx)
        if film:
            one_episode = effective.with_episodes(1)
            play(one_episode, policy, stop, seed=seed, rounds=1, video=folder / "film.mp4")
        shutil.copyfile(settings, folder / settings.name)
        seal(folder, agent, form, episode_limit=effective.config.evaluator.max_episode_steps)
        (folder / "README.md").write_text(card(form, evaluation, about, place.name), "utf-8")
        lines = verify_export(open_export(folder))
        folder.rename(place)
    return evaluation, lines


def write_formats(
    folder: Path,
    agent: LearningAgent,
    policy: NetworkPolicy,
    form: PolicyForm,
    rows: Array,
    *,
    onnx: bool,
) -> None:
    """Writes the weights, the formats for acting, and the verification on `rows`. [N, …]"""
    from safetensors.numpy import save

    weights = {
        f"{part}.{name}": np.array(array, order="C")  # safetensors ignores strides
        for part, arrays in agent.weights().items()
        for name, array in arrays.items()
    }
    (folder / MODEL).write_bytes(save(weights))
    if not form.architecture.acts_in_torch:
        acting: Any = agent.snapshot().arrays
        np.savez(folder / POLICY_NPZ, **acting)
    if onnx:
        from border_cli.export.onnx import write_onnx

        write_onnx(agent, form, folder / POLICY_ONNX)
    np.savez_compressed(folder / VERIFICATION, **_verification(policy, form, rows))


def _verification(policy: NetworkPolicy, form: PolicyForm, rows: Array) -> dict[str, Any]:
    """Returns raw observations of the environment and the policy's actions for them."""
    raw = form.spec.raw
    assert raw is not None
    parts = rows if isinstance(rows, dict) else {"": rows}
    network_obs = split_mask(rows)[0] if has_masks(form.spec.observation) else rows
    values = ActionSelector(form.greedy, form.spec.action).values(policy.network(network_obs))
    gaps = np.diff(np.sort(values, axis=1), axis=1).min(axis=1, initial=np.inf)
    threshold = 10 * TOLERANCE * np.maximum(1, np.abs(values).max(axis=1))
    return {
        **{
            f"{OBSERVATION}.{key}".rstrip("."): batch_of(space)(parts[key])
            for key, space in raw.observation.parts.items()
        },
        "action": batch_of(raw.action)(policy.act(rows, explore=False)),
        "values": values,
        # False if rounding errors could change the action
        "decided": (gaps > threshold) | (form.greedy.kind == "tanh"),
    }


def seal(
    folder: Path, agent: LearningAgent, form: PolicyForm, *, episode_limit: int | None = None
) -> None:
    """Writes `policy.json`, with the checksums of all other files in the folder."""
    content = {
        "format": FORMAT,
        "version": VERSION,
        **form.as_json(),
        "border_cli": __version__,
        "semantics": agent.config.semantic_settings,
        EPISODE_LIMIT: episode_limit,
        "files": {path.name: checksum(path) for path in sorted(folder.iterdir())},
    }
    write_json(folder / POLICY_JSON, content)
