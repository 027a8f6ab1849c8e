"""Every shipped config file composes, and every registered component has a file."""

from __future__ import annotations

import pytest

from border_cli.config.compose import Composer, compose
from border_cli.registry import GROUPS, register_builtin
from tests.support.case_sampling import sampled, thinned
from tests.support.shipped_configs import CONF, ONE_STEP, chosen_by, pair_of

FILES = sorted(
    (file.parent.name, file.stem)
    for file in CONF.glob("*/*.yaml")
    if file.parent.name not in ("tuned", "search")
)
TUNED = sorted(file.stem for file in (CONF / "tuned").glob("*.yaml"))
ON_POLICY = ("ppo", "a2c")  # agents that work with one replay buffer and one trainer only


@pytest.mark.parametrize(("group", "name"), sampled([*FILES], every=7))
def test_every_file_composes(group: str, name: str) -> None:
    job = Composer().job(chosen_by(group, name))
    files = [source.file for source in job.sources if source.group == group]
    assert name == "none" or str(CONF / group / f"{name}.yaml") in files


def test_no_file_has_a_mistake_in_its_defaults_list() -> None:
    """In a folder of the user, files are checked; where they are shipped, they are not."""
    names = [*FILES, *(("tuned", name) for name in TUNED)]
    paths = ["config", *(f"{group}/{name}" for group, name in names)]
    with Composer([f"file://{CONF}"]).open_files() as files:
        assert [files.file(path) for path in paths] == [CONF / f"{path}.yaml" for path in paths]


@pytest.mark.slow
def test_every_registered_component_has_its_file_and_is_what_the_file_gives() -> None:
    register_builtin()
    for group, registry in GROUPS.items():
        for entry in registry:
            one_step = [ONE_STEP] if entry.name == "hindsight" else []
            if entry.name == "rollout":
                one_step = ["agent=ppo"]
            for name in (entry.name, *entry.presets):
                settings = getattr(compose(f"{group}={name}", *one_step), group)
                component = settings[name] if isinstance(settings, dict) else settings
                assert type(component) is entry.config_type


@pytest.mark.parametrize("tuned", [stem for stem in TUNED if stem.startswith(ON_POLICY)])
def test_tuned_values_of_agents_with_rollouts_apply(tuned: str) -> None:
    job = Composer().job(pair_of(tuned))
    assert tuned in [source.choice for source in job.sources if source.group == "tuned"]
    assert job.config.trainer.synchronous
    assert job.config.actor_manager.num_actors == 1


REST = [tuned for tuned in TUNED if not tuned.startswith(ON_POLICY)]
GROUPS_BESIDE = sorted({group for group, _ in FILES} - {"agent", "env", "experiment"})
OPTIONS = [
    [f"{group}={name}" for in_group, name in FILES if in_group == group and name != "rollout"]
    for group in GROUPS_BESIDE
]  # one list per group
SYNC = ["trainer=sync", "actor_manager=serial"]  # trainer=sync works with no other manager
ROWS = [[names[row % len(names)] for names in OPTIONS] for row in range(max(map(len, OPTIONS)))]


@pytest.mark.parametrize(
    "tuned",
    sampled(thinned(REST, 8), every=2),
)
def test_a_tuned_file_goes_with_every_option_of_every_group(tuned: str) -> None:
    """Combines one option per group until every option was used."""
    for row in ROWS:
        beside = SYNC if "trainer=sync" in row else []
        job = Composer().job([*pair_of(tuned), *row, *beside, ONE_STEP])
        assert tuned in [source.choice for source in job.sources if source.group == "tuned"]
