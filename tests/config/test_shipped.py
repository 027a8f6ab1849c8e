"""Every shipped config file composes, and every registered component has a file of its name."""

from __future__ import annotations

from functools import cache

import pytest

from border_cli.config.compose import Composer
from border_cli.config.job import Job
from border_cli.registry import GROUPS, register_builtin
from tests.support.case_sampling import sampled, thinned
from tests.support.shipped_configs import CONF, ONE_STEP, chosen_by, pair_of

FILES = sorted(
    (file.parent.name, file.stem)
    for file in CONF.glob("*/*.yaml")
    if file.parent.name not in ("tuned", "search")
)
LARGE = ("agent", "env", "experiment")  # groups with one composition per file
TUNED = sorted(file.stem for file in (CONF / "tuned").glob("*.yaml"))
ON_POLICY = ("ppo", "a2c")  # agents that work with one replay buffer and one trainer only


@cache
def component_types() -> dict[tuple[str, str], type]:
    """Returns the type of every registered component and preset, by group and name."""
    register_builtin()
    return {
        (group, name): entry.config_type
        for group, registry in GROUPS.items()
        for entry in registry
        for name in (entry.name, *entry.presets)
    }


def assert_uses(job: Job, group: str, name: str) -> None:
    """Asserts that a job uses a file, and has the component that is registered with its name."""
    files = [source.file for source in job.sources if source.group == group]
    assert name == "none" or str(CONF / group / f"{name}.yaml") in files
    if (group, name) in (types := component_types()):
        settings = getattr(job.config, group)
        component = settings[name] if isinstance(settings, dict) else settings
        assert type(component) is types[group, name]


def test_every_registered_component_has_its_file() -> None:
    assert component_types().keys() <= {*FILES}


@pytest.mark.parametrize(
    ("group", "name"), sampled([file for file in FILES if file[0] in LARGE], every=7, keep=True)
)
def test_every_file_composes(group: str, name: str) -> None:
    assert_uses(Composer().job(chosen_by(group, name)), group, name)


def test_no_file_has_a_mistake_in_its_defaults_list() -> None:
    """In a folder of the user, files are checked; where they are shipped, they are not."""
    names = [*FILES, *(("tuned", name) for name in TUNED)]
    paths = ["config", *(f"{group}/{name}" for group, name in names)]
    with Composer([f"file://{CONF}"]).open_files() as files:
        assert [files.file(path) for path in paths] == [CONF / f"{path}.yaml" for path in paths]


@pytest.mark.parametrize(
    "tuned", sampled([stem for stem in TUNED if stem.startswith(ON_POLICY)], every=4)
)
def test_tuned_values_of_agents_with_rollouts_apply(tuned: str) -> None:
    job = Composer().job(pair_of(tuned))
    assert tuned in [source.choice for source in job.sources if source.group == "tuned"]
    assert job.config.trainer.synchronous
    assert job.config.actor_manager.num_actors == 1


REST = [tuned for tuned in TUNED if not tuned.startswith(ON_POLICY)]
OPTIONS = [
    [(group, name) for in_group, name in FILES if in_group == group and name != "rollout"]
    for group in sorted({group for group, _ in FILES} - {*LARGE})
]  # one list per group; test_every_file_composes has `rollout`, with its agents
ROWS = [[names[row % len(names)] for names in OPTIONS] for row in range(max(map(len, OPTIONS)))]


@pytest.mark.parametrize("tuned", sampled(thinned(REST, 16), every=2))
def test_a_tuned_file_goes_with_every_option_of_every_group(tuned: str) -> None:
    """Combines one option per group until every option was used."""
    for row in ROWS:
        chosen = dict(row)
        if chosen["trainer"] == "sync":
            chosen["actor_manager"] = "serial"  # it works with no other
        typed = [f"{group}={name}" for group, name in chosen.items()]
        job = Composer().job([*pair_of(tuned), *typed, ONE_STEP])
        assert tuned in [source.choice for source in job.sources if source.group == "tuned"]
        for group, name in chosen.items():
            assert_uses(job, group, name)
