"""Someone else's run directory: opening it runs none of its code unless `trust=true` is given."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from border_cli import load_policy, resume
from border_cli.errors import ConfigError
from border_cli.run.status import RUN_JSON
from border_cli.system.files import SETTINGS as FILE
from border_cli.system.foreign import POLICY
from tests.support import commands
from tests.support.case_sampling import thinned
from tests.support.commands import (
    QUICK,
    Command,
    eval_status,
    facts_of,
    record_status,
    train_status,
)

Capture = pytest.CaptureFixture[str]
Attack = Callable[..., Path]

SETTINGS = (
    *("env=cartpole", "actor_manager=serial", "recorder=none", "quiet=true", *QUICK),
    "trainer.stop_at_score=null",
)
MODULE = "module_of_theirs"
CODE = """\
with open({mark!r}, "w"):  # before any import: the imported modules may be planted, too
    pass
import gymnasium
if "Theirs-v0" not in gymnasium.registry:
    gymnasium.register("Theirs-v0", "gymnasium.envs.classic_control:CartPoleEnv")
"""


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("theirs")
    with commands.isolated(folder):
        assert train_status(*SETTINGS, "run_dir=run") == 0
    return folder / "run"


@pytest.fixture
def mark(folder: Path) -> Path:
    """A file that is created if code of the run is executed."""
    return folder / "mark"


@pytest.fixture
def attack(
    ran: Path, folder: Path, mark: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Attack]:
    """Copies a run and makes its settings import a module from the run directory."""
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(folder / "datasets"))

    def _attack(
        before: str = "imports: []",
        after: str = f"imports: [{MODULE}]",
        *,
        name: str = "theirs",
        home: str | None = None,
    ) -> Path:
        run_dir = folder / name
        shutil.copytree(ran, run_dir, symlinks=True)
        text = (run_dir / FILE).read_text()
        assert before in text
        (run_dir / FILE).write_text(text.replace(before, after))
        (run_dir / f"{MODULE}.py").write_text(CODE.format(mark=str(mark)))
        facts = facts_of(run_dir) | {"import_paths": [home or str(run_dir)]}
        (run_dir / RUN_JSON).write_text(json.dumps(facts))
        return run_dir

    yield _attack
    for name in [name for name in sys.modules if MODULE in name]:
        del sys.modules[name]


def status_from_python(call: Callable[..., object], *arguments: object) -> int:
    """Calls a function and handles a `ConfigError` as a command does; returns the exit status."""
    try:
        call(*arguments)
    except ConfigError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_status
    return 0


WAYS: dict[str, Callable[[Path], int]] = {
    "border-eval": lambda run: eval_status(str(run)),
    "border-record": lambda run: record_status(str(run), "dataset=my/x-v0", "episodes=1"),
    "load_policy": lambda run: status_from_python(load_policy, run),
    "resume from Python": lambda run: status_from_python(resume, run, "trainer.max_opt_steps=3"),
    "resume": lambda run: train_status(f"resume={run}", "trainer.max_opt_steps=3"),
    "--from": lambda run: train_status("--from", str(run), "dry_run=true"),
    "resume=auto": lambda run: train_status(*SETTINGS, f"run_dir={run}", "resume=auto", "seed=1"),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_module_that_a_run_brings_along_is_refused_by_name(
    way: str, attack: Attack, mark: Path, capsys: Capture
) -> None:
    run_dir = attack()
    assert WAYS[way](run_dir) == 2
    assert not mark.exists()
    said = capsys.readouterr().err
    assert re.search(rf"resolved\.yaml: imports names the module '{MODULE}'", said)
    assert f"The run had found its modules in: {run_dir}. If you have the code and trust it" in said


@pytest.mark.parametrize(
    ("before", "after", "setting"),
    [
        ("  id: CartPole-v1", f"  id: {MODULE}:Theirs-v0", "env.id"),
        ("  env: {}", f"  env: {{id: '{MODULE}:Theirs-v0'}}", "evaluator.env.id"),
        ("  wrappers: []", f"  wrappers: [{{'{MODULE}:Twice': {{a: 1}}}}]", "env.wrappers"),
    ],
)
def test_a_module_in_the_id_or_the_wrappers_of_an_environment_is_refused(
    attack: Attack, mark: Path, capsys: Capture, before: str, after: str, setting: str
) -> None:
    run_dir = attack(before, after)
    assert eval_status(str(run_dir)) == 2
    load_policy(run_dir)  # needs no environment
    assert not mark.exists()
    assert f"resolved.yaml: {setting} names the module '{MODULE}'" in capsys.readouterr().err


def test_the_run_directory_never_counts_whatever_leads_to_it(
    attack: Attack, folder: Path, mark: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_dir = attack()
    (folder / "link").symlink_to(run_dir)
    monkeypatch.setattr(sys, "path", ["", str(folder / "link"), *sys.path])
    assert eval_status("theirs") == 2
    attack(after=f"imports: [as_a_package.{MODULE}]", name="as_a_package")
    assert eval_status("as_a_package") == 2
    for directory in (run_dir, run_dir / "checkpoints"):
        monkeypatch.chdir(directory)
        for way in ("border-eval", "load_policy", "resume=auto"):
            assert WAYS[way](run_dir) == 2
    assert not mark.exists()


def test_where_the_users_own_python_finds_a_module_it_is_imported(
    attack: Attack, folder: Path, mark: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_dir = attack(home=str(folder / "mine"))
    (folder / "mine").mkdir()
    (folder / "mine" / f"{MODULE}.py").write_text(CODE.format(mark=str(mark)))
    assert eval_status(str(run_dir)) == 2
    monkeypatch.chdir(folder / "mine")
    assert eval_status(str(run_dir)) == 0
    assert sys.modules[MODULE].__file__ == str(folder / "mine" / f"{MODULE}.py")


def test_trust_counts_where_it_is_typed_and_is_saved_nowhere(
    attack: Attack, mark: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_dir = attack()
    trusting: list[Callable[[], Any]] = [
        lambda: eval_status(str(run_dir), "trust=true"),
        lambda: train_status(f"resume={run_dir}", "trust=on", "trainer.max_opt_steps=3"),
        lambda: load_policy(run_dir, trust=True),
        lambda: resume(run_dir, "trainer.max_opt_steps=4", trust=True),
        lambda: train_status(f"resume={run_dir}", "++trust=True", "--cfg", "job"),
    ]
    for call in trusting:
        path = list(sys.path)
        assert call() != 2
        assert mark.exists()
        mark.unlink()
        del sys.modules[MODULE]
        assert sys.path == path
    for saved in (run_dir / ".hydra").rglob("*.yaml"):
        assert "trust=" not in saved.read_text()
    assert eval_status(str(run_dir), "trust=false") == 2
    monkeypatch.chdir(run_dir)
    (run_dir / RUN_JSON).write_text("{}")
    assert eval_status(".", "trust=true") == 0  # modules in the current directory are trusted, too
    assert mark.exists()


def test_trust_is_no_setting(folder: Path, ran: Path, capsys: Capture) -> None:
    (folder / "conf").mkdir()
    (folder / "conf" / "mine.yaml").write_text("defaults: [config, _self_]\ntrust: true\n")
    for argv, said in (
        (["trust=true", "--cfg", "job"], "trust=true applies to the modules of a resumed run"),
        (["trust=true", "run_dir=x", "env=cartpole"], "or of --from RUN_DIR: give one"),
        (["-cd", "conf", "-cn", "mine"], "unknown setting 'trust'"),
        ([f"resume={ran}", "trust=[true]"], "trust=[true]: trust must be true or false"),
        (["-m", f"resume={ran}", "trust=true,false"], "trust must be true or false"),
    ):
        assert train_status(*argv) == 2
        assert said in capsys.readouterr().err
    assert eval_status(str(ran), "trust=maybe") == 2
    assert "trust must be true or false, got 'maybe'" in capsys.readouterr().err
    for command in (eval_status, train_status):
        assert command("--help") == 0
        assert "trust=true" in capsys.readouterr().out


def test_modules_that_lie_in_the_run_directory_need_trust_to_go_on(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    (folder / f"{MODULE}.py").write_text(CODE.format(mark=str(folder / "mark")))
    monkeypatch.setattr(sys, "path", list(sys.path))
    typed = (*SETTINGS, f"imports=[{MODULE}]", "run_dir=.", "resume=auto")
    assert train_status(*typed) == 0
    del sys.modules[MODULE]
    assert train_status(*typed, "trainer.max_opt_steps=3") == 2
    said = f"plug-ins and modules of the current directory are not used: {folder / FILE} shows"
    assert said in capsys.readouterr().err
    assert train_status(*typed, "trainer.max_opt_steps=3", "trust=true") == 0
    del sys.modules[MODULE]


def test_a_saved_file_that_is_run_again_imports_nothing_from_its_run(
    attack: Attack, mark: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    run_dir = attack()
    plug_in = f'[project.entry-points."border_cli.plugins"]\nx = "{MODULE}:f"\n'
    (run_dir / "pyproject.toml").write_text(plug_in)
    monkeypatch.chdir(run_dir)
    assert train_status("-cd", ".hydra", "-cn", "resolved", "--cfg", "job") == 2
    said = capsys.readouterr().err
    assert f"imports names the module '{MODULE}'" in said
    assert f"plug-ins and modules of the current directory are not used: {run_dir / FILE}" in said
    assert not mark.exists()


PROJECT = '[project.entry-points."border_cli.plugins"]\nx = "{module}:f"\n'


@pytest.fixture
def lending(ran: Path, folder: Path, mark: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current directory that contains a run and plug-ins for border_cli and Hydra."""
    sweep_dir = folder / "sweep"
    shutil.copytree(ran, sweep_dir / "seed-0", symlinks=True)
    (sweep_dir / "pyproject.toml").write_text(PROJECT.format(module=MODULE))
    (sweep_dir / "hydra_plugins").mkdir()
    for name in (f"{MODULE}.py", "hydra_plugins/evil.py"):
        text = CODE.format(mark=str(mark)) + "def f(): return None\n"
        (sweep_dir / name).write_text(text)
    monkeypatch.chdir(sweep_dir)
    return sweep_dir


SIGNS = ("sweep.json", "study.json", "policy.json", ".hydra/resolved.yaml")
CALLS: dict[str, Callable[[str], int]] = {
    "evaluate": lambda run_dir: eval_status(run_dir, "episodes=1"),
    "help": lambda _: train_status("--help"),
    "compose": lambda _: train_status("env=cartpole", "--cfg", "job"),
    "resume": lambda run_dir: train_status(
        f"resume={run_dir}", "trainer.max_opt_steps=3", "dry_run=true"
    ),
}


@pytest.mark.parametrize(
    ("sign", "call"), thinned([*product(SIGNS, CALLS)], 5)
)  # each sign and each call once
def test_a_folder_that_we_wrote_lends_no_plug_ins_and_says_why(
    sign: str,
    call: str,
    lending: Path,
    mark: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Capture,
) -> None:
    (lending / sign).parent.mkdir(exist_ok=True)
    (lending / sign).write_bytes(POLICY)
    why = f"plug-ins and modules of the current directory are not used: {lending / sign} shows"
    for directory, lines in ((lending, 1), (lending / "seed-0" / "checkpoints", 0)):
        monkeypatch.chdir(directory)
        assert CALLS[call](str(lending / "seed-0")) == 0
        assert capsys.readouterr().err.count(why) == lines
    assert not mark.exists()


def test_the_users_own_project_lends_plug_ins(lending: Path, mark: Path, capsys: Capture) -> None:
    assert eval_status("seed-0", "episodes=1") == 0
    assert mark.exists()
    assert capsys.readouterr().err == ""
    assert (lending / "pyproject.toml").exists()


@pytest.mark.parametrize("line", ["border-train agent=d", "border-train agent=dqn agent.lo"])
def test_a_tab_calls_no_plug_in_of_the_current_directory(
    line: str, lending: Path, mark: Path
) -> None:
    program = Path(sys.executable).with_name("border-train")
    done = subprocess.run(
        [program, "-sc", "query=bash"],
        cwd=lending,
        env={**os.environ, "COMP_LINE": line},
        capture_output=True,
        text=True,
        check=True,
        timeout=commands.DEADLINE_S,
    )
    assert {"agent=dqn", "agent.loss="} & set(done.stdout.split())
    assert not mark.exists()


def test_hydras_plug_ins_are_those_of_ones_own_project_alone(lending: Path, mark: Path) -> None:
    program = Path(sys.executable).with_name("border-train")
    argv = [program, "env=cartpole", "--cfg", "job"]
    (lending / "pyproject.toml").unlink()
    for sign in ("sweep.json", None):
        if sign:
            (lending / sign).touch()
        else:
            (lending / "sweep.json").unlink()
        subprocess.run(argv, cwd=lending, check=True, timeout=commands.DEADLINE_S)
        assert mark.exists() == (sign is None)


def test_a_pipe_in_the_place_of_a_project_is_not_waited_for(lending: Path) -> None:
    (lending / "pyproject.toml").unlink()
    os.mkfifo(lending / "pyproject.toml")
    assert train_status("env=cartpole", "--cfg", "job") == 0


def test_a_pipe_in_the_place_of_a_file_is_refused(attack: Attack, capsys: Capture) -> None:
    run_dir = attack("seed: 0", "seed: 0")
    (run_dir / "metrics.jsonl").unlink(missing_ok=True)
    os.mkfifo(run_dir / "metrics.jsonl")
    assert train_status(f"resume={run_dir}", "trainer.max_opt_steps=3") == 2
    assert "metrics.jsonl is not a regular file" in capsys.readouterr().err


FAILING = """
import gymnasium
from gymnasium.envs.classic_control import CartPoleEnv
class Failing(CartPoleEnv):
    def step(self, action):
        raise RuntimeError("no answer of http://user@corp.com:SECRET0123@host, key TOPSECRET99")
"""


def test_passwords_are_in_no_log_no_message_and_no_record(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setenv("MY_API_KEY", "TOPSECRET99")
    monkeypatch.setenv("SHORT_TOKEN", "answer")
    (folder / "failing.py").write_text(FAILING)
    typed = ("agent=dqn", "env.id=failing:Failing", "env.probe=false", "run_dir=run")
    assert train_status(*typed, "actor_manager=thread", *QUICK) == 1
    out, err = capsys.readouterr()
    written = [
        path.read_text(errors="replace") for path in folder.glob("run/**/*") if path.is_file()
    ]
    for text in (out, err, *written):
        assert "SECRET0123" not in text
        assert "TOPSECRET99" not in text
    log = (folder / "run/border-train.log").read_text()
    assert "no answer of http://***@host, key ***" in log


@pytest.mark.slow
def test_modules_that_libraries_import_are_not_taken_from_a_run(
    attack: Attack, folder: Path, mark: Path
) -> None:
    run_dir = attack("seed: 0", "seed: 0")
    (run_dir / "hydra_plugins").mkdir()
    for name in ("torch.py", "hydra_plugins/x.py", "cv2.py", "jax.py", "IPython.py"):
        (run_dir / name).write_text(CODE.format(mark=str(mark)))
    for directory, typed in ((folder, "theirs"), (run_dir, ".")):
        with Command(directory, f"resume={typed}", "dry_run=true") as command:
            assert command.ended()[0] == 0
        assert not mark.exists()


@pytest.mark.slow
def test_child_processes_look_for_nothing_in_the_current_directory(
    attack: Attack, mark: Path
) -> None:
    run_dir = attack("/actor_manager/serial@", "/actor_manager/process@")
    text = (run_dir / FILE).read_text()
    (run_dir / FILE).write_text(text.replace(f"[{MODULE}]", "[]"))
    for name in ("signal.py", "selectors.py"):  # imported by Python's fork server
        (run_dir / name).write_text(CODE.format(mark=str(mark)))
    program = Path(sys.executable).with_name("border-train")
    argv = [program, "resume=.", "trainer.max_opt_steps=3"]
    subprocess.run(argv, cwd=run_dir, check=True, timeout=commands.DEADLINE_S)
    assert not mark.exists()


def test_what_a_run_names_cannot_steer_the_terminal(
    attack: Attack, folder: Path, capsys: Capture
) -> None:
    run_dir = attack("  id: CartPole-v1", '  id: "Cart\\e[31m\\u202ePole-v1"')
    assert eval_status(str(run_dir)) == 2
    assert r"env.id=Cart\x1b[31m\u202ePole-v1 is not registered" in capsys.readouterr().err
    moved = run_dir.rename(folder / "their\x1b[2J")
    shutil.rmtree(moved / "checkpoints")
    assert eval_status(str(moved)) == 2
    said = capsys.readouterr().err
    assert r"their\x1b[2J" in said
    assert "\x1b" not in said


@pytest.mark.usefixtures("folder")
def test_what_a_run_names_is_escaped_on_the_console(capsys: Capture) -> None:
    settings = [setting for setting in SETTINGS if not setting.startswith("quiet")]
    assert train_status(*settings, "run_dir=run", "name='x\x1b[31m\u202ey'") == 0
    out = capsys.readouterr().out
    assert r"x\x1b[31m\u202ey" in out
    assert "\u202e" not in out
    assert "\x1b[31m" not in out
