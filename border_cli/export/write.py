"""Writes the folder of an exported policy: whole, verified, or not at all."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from border_cli import __version__
from border_cli.agent.greedy import Choice
from border_cli.agent.learner_config import LearnerConfig
from border_cli.agent.policies import NetworkPolicy
from border_cli.agent.torch_agent import TorchAgent
from border_cli.core.interfaces import Evaluation, Policy
from border_cli.core.raw_values import batch_of
from border_cli.core.rows import joined_arrays
from border_cli.core.spaces import has_masks, split_mask
from border_cli.core.stop import StopFlag
from border_cli.core.types import Array, Snapshot, map_array, num_rows
from border_cli.errors import ConfigError, MissingPackage
from border_cli.evaluator.film import refuse_no_film
from border_cli.export.card import card
from border_cli.export.form import PolicyForm
from border_cli.export.verify import OBSERVATION, TOLERANCE, verified
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
    opened_folder,
)
from border_cli.settings.networks import Matmul, MatmulPrecision
from border_cli.settings.run import RunConfig
from border_cli.system.files import POLICY_JSON, checksum, write_json

MOST_KEPT = 256  # observations for the verification
MOST_WATCHED = 10 * MOST_KEPT  # from which these are drawn


def in_float32(config: RunConfig) -> RunConfig:
    """The settings without what computes in less on some processors."""
    agent = config.agent
    if isinstance(agent, LearnerConfig):
        agent = replace(agent, matmul=Matmul.mkl, matmul_precision=MatmulPrecision.highest)
    return replace(config, agent=agent)


def form_of(agent: Any, policy: Any, name: str) -> PolicyForm:
    """What `policy.json` says of the policy of an agent, which messages call by this name.

    Raises ConfigError where its greedy action is none that `policy.json` can describe.
    """
    greedy = policy.greedy_form if isinstance(policy, NetworkPolicy) else None
    if (
        greedy is None
        or not isinstance(agent, TorchAgent)
        or (twin := type(policy.network).__name__) not in TWINS
        or agent.spec.raw is None
    ):
        raise ConfigError(
            f"agent={name} cannot be exported: it must act by a NetworkPolicy that has a "
            f"greedy_form and one of {', '.join(TWINS)}, in an environment that says its spaces "
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
    """Raises MissingPackage before anything is played."""
    for each in ("safetensors", *(("onnx", "onnxruntime", "onnxscript") if onnx else ())):
        if find_spec(each) is None:
            raise MissingPackage(f"border-export ({each})", EXTRA)
    if film:
        refuse_no_film(Path("film.mp4"))


class Watched(Policy):
    """A policy, and the first observations that it acts on."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self.kept: list[Array] = []  # [N, …] each

    def load_snapshot(self, snapshot: Snapshot) -> None:
        self._policy.load_snapshot(snapshot)

    def act(self, obs: Array, *, explore: bool) -> NDArray[Any]:
        if len(self.kept) * num_rows(obs) < MOST_WATCHED:
            self.kept.append(map_array(np.copy, obs))
        return self._policy.act(obs, explore=explore)


def write(
    place: Path,
    effective: EffectiveSettings,
    agent: TorchAgent,
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
    """Plays, writes, verifies; `place` is there at the end or not at all.

    `settings` is the file of the run's; `about` has facts of the run for the model card.
    """
    place.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=f".{place.name}-", dir=place.parent) as around:
        folder = Path(around, place.name)
        folder.mkdir()
        watched = Watched(policy)
        evaluation = play(effective, watched, stop, seed=seed, rounds=1)
        rows = joined_arrays(watched.kept)
        some = np.random.default_rng(0).permutation(num_rows(rows))[:MOST_KEPT]
        rows = map_array(lambda part: part[some], rows)
        write_formats(folder, agent, policy, form, rows, onnx=onnx)
        if film:
            one = effective.with_episodes(1)
            play(one, policy, stop, seed=seed, rounds=1, video=folder / "film.mp4")
        shutil.copyfile(settings, folder / settings.name)
        seal(folder, agent, form)
        (folder / "README.md").write_text(card(form, evaluation, about, place.name), "utf-8")
        lines = verified(opened_folder(folder))
        folder.rename(place)
    return evaluation, lines


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
    from safetensors.torch import save

    weights = {
        f"{part}.{name}": tensor.cpu().clone(memory_format=torch.contiguous_format)
        for part, module in agent.learned_modules().items()
        for name, tensor in module.state_dict().items()
    }
    (folder / MODEL).write_bytes(save(weights))
    if not form.architecture.acts_in_torch:
        arrays: Any = agent.snapshot().arrays
        np.savez(folder / POLICY_NPZ, **arrays)
    if onnx:
        from border_cli.export.onnx import write_onnx

        write_onnx(agent, form, folder / POLICY_ONNX)
    np.savez_compressed(folder / VERIFICATION, **_verification(policy, form, rows))


def _verification(policy: NetworkPolicy, form: PolicyForm, rows: Array) -> dict[str, Any]:
    """Observations as the environment gives them, and what the policy does on them."""
    raw = form.spec.raw
    assert raw is not None
    parts = rows if isinstance(rows, dict) else {"": rows}
    seen = split_mask(rows)[0] if has_masks(form.spec.observation) else rows
    values = Choice(form.greedy, form.spec.action).values(policy.network(seen))
    gaps = np.diff(np.sort(values, axis=1), axis=1).min(axis=1, initial=np.inf)
    near = 10 * TOLERANCE * np.maximum(1, np.abs(values).max(axis=1))
    return {
        **{
            f"{OBSERVATION}.{key}".rstrip("."): batch_of(space)(parts[key])
            for key, space in raw.observation.parts.items()
        },
        "action": batch_of(raw.action)(policy.act(rows, explore=False)),
        "values": values,
        # Between values that are so close rounding may decide.
        "decided": (gaps > near) | (form.greedy.kind == "tanh"),
    }


def seal(folder: Path, agent: TorchAgent, form: PolicyForm) -> None:
    """`policy.json`, which names the other files that are there."""
    content = {
        "format": FORMAT,
        "version": VERSION,
        **form.as_json(),
        "border_cli": __version__,
        "semantics": agent.config.semantic_settings,
        "files": {each.name: checksum(each) for each in sorted(folder.iterdir())},
    }
    write_json(folder / POLICY_JSON, content)
