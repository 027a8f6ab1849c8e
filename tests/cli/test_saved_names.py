"""What the saved settings of someone else's run may import, call, open and connect to; your own
runs open as before."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from border_cli import compose, load_policy, resume
from border_cli.cli import export as export_command
from border_cli.config.job import resolved_yaml, write_resolved
from border_cli.config.saved import load_resolved
from border_cli.errors import ConfigError
from border_cli.settings.run import RunConfig
from border_cli.system.files import SETTINGS
from tests.support import commands
from tests.support.case_sampling import sampled
from tests.support.commands import QUICK, eval_status, record_status, train_status
from tests.support.foreign_runs import install_module, tampered, write_module

Capture = pytest.CaptureFixture[str]
Theirs = Callable[..., Path]
OPTIONS = ("env=cartpole", "recorder=none", "quiet=true", *QUICK, "trainer.stop_at_score=null")
SERIAL = (*OPTIONS, "actor_manager=serial")
NAMES = ("colleague", "installed", "of_gymnasium", "vendored", "by_accident")


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("theirs")
    with commands.isolated(folder):
        assert train_status(*SERIAL, "run_dir=run") == 0
    return folder / "run"


@pytest.fixture
def theirs(ran: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Theirs]:
    """Copies a run and changes its saved settings."""
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(folder / "datasets"))
    importlib.invalidate_caches()
    yield lambda **values: tampered(
        ran, folder / "theirs", {name.replace("__", "."): value for name, value in values.items()}
    )
    for name in NAMES:
        sys.modules.pop(name, None)


@pytest.fixture
def mark(folder: Path) -> Path:
    """A file that is created if code of the run is executed."""
    return folder / "mark"


def from_python(call: Callable[..., object], *arguments: object) -> int:
    """Calls a function and handles a `ConfigError` as a command does; returns the exit status."""
    try:
        call(*arguments)
    except ConfigError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_status
    return 0


def export_status(run: Path) -> int:
    try:
        export_command.main([str(run), str(run.with_name("exported")), "onnx=false"])
    except SystemExit as left:
        return int(left.code or 0)
    return 0


MORE = "trainer.max_opt_steps=3"
WAYS: dict[str, Callable[[Path], int]] = {
    "border-eval": lambda run: eval_status(str(run), "episodes=1"),
    "border-export": export_status,
    "border-record": lambda run: record_status(str(run), "dataset=my/x-v0", "episodes=1"),
    "resume": lambda run: train_status(f"resume={run}", MORE),
    "resume from Python": lambda run: from_python(resume, run, MORE),
    "--from": lambda run: train_status("--from", str(run), "dry_run=true"),
    "--from -m": lambda run: train_status("-m", "--from", str(run), "dry_run=true", "seed=1,2"),
    "-cn resolved": lambda run: train_status(
        "-cd", str(run / SETTINGS.parent), "-cn", SETTINGS.stem, "dry_run=true"
    ),
}


@pytest.mark.parametrize(
    ("way", "place"), [*((way, "env") for way in WAYS), ("border-eval", "evaluator.env")]
)
def test_a_program_is_not_called(
    way: str, place: str, theirs: Theirs, mark: Path, capsys: Capture
) -> None:
    call = {"id": "psutil:Popen", "kwargs": {"args": ["touch", mark.name]}}
    if place == "env":
        run = theirs(**{f"env.{name}": value for name, value in call.items()})
    else:
        run = theirs(evaluator__env=call)
    assert WAYS[way](run) == 2
    assert not mark.exists()
    said = capsys.readouterr().err
    assert f"resolved.yaml: {place}.id=psutil:Popen is not called: it is neither a class of" in said
    assert "(border-eval RUN_DIR env.id=psutil:Popen, resume=, --from), or trust=true" in said


@pytest.mark.parametrize(
    "env_id",
    [
        *("numpy:load", "torch.hub:load", "gymnasium:make", "gymnasium.wrappers:RecordVideo"),
        *("gymnasium.envs.registration:load_env_creator", "border_cli.env.construct:construct"),
        *("colleague:run", "colleague:pretended", "colleague:partial", "colleague:NoEnv"),
        *("of_gymnasium:make", "of_gymnasium:wrong", "of_gymnasium:run"),
        *("vendored:make", "by_accident:make"),
    ],
)
def test_a_callable_that_makes_no_environments_is_not_called(
    env_id: str, theirs: Theirs, folder: Path, capsys: Capture
) -> None:
    write_module(folder, "colleague", folder / "fine")
    theirs_too = folder / "their sweep"
    write_module(theirs_too, "by_accident", folder / "fine")
    sys.path += [
        str(install_module(folder / "a", "of_gymnasium", folder / "fine", "Gymnasium>=1")),
        str(install_module(folder / ".venv", "vendored", folder / "fine", "gymnasium[mujoco]")),
        str(theirs_too),
    ]
    if env_id.startswith("by_accident"):
        importlib.import_module("by_accident")
        (theirs_too / "sweep.json").touch()
    assert eval_status(str(theirs(env__id=env_id))) == 2
    assert f"env.id={env_id} is not called" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("way", "env_id"),
    [
        *((way, "colleague:make") for way in ("border-record", "border-export", "--from")),
        *(("border-eval", f"colleague:{name}") for name in ("make", "cached", "Own")),
        ("border-eval", "of_gymnasium:annotated"),
    ],
)
def test_what_makes_environments_is_called_as_before(
    way: str, env_id: str, theirs: Theirs, folder: Path, mark: Path
) -> None:
    write_module(folder, "colleague", mark)
    sys.path.append(str(install_module(folder, "of_gymnasium", mark, "gymnasium")))
    assert WAYS[way](theirs(env__id=env_id, env__kwargs={"length": 3})) == 0


def test_what_is_typed_is_called(theirs: Theirs, folder: Path, mark: Path) -> None:
    sys.path.append(str(install_module(folder, "of_gymnasium", mark, "gymnasium")))
    run, typed = theirs(env__id="of_gymnasium:make"), "env.id=of_gymnasium:make"
    assert eval_status(str(run)) == 2
    assert eval_status(str(run), typed) == 0
    assert train_status("--from", str(run), typed, "dry_run=true") == 0
    assert train_status(f"resume={run}", typed, MORE) == 0
    assert train_status(*SERIAL, typed, f"run_dir={run}", "resume=auto", MORE) == 0
    assert eval_status(str(run), "trust=true") == 0
    assert train_status(f"resume={run}", "trust=true", "trainer.max_opt_steps=4") == 0
    (folder / "conf/experiment").mkdir(parents=True)
    text = "# @package _global_\nenv: {id: 'of_gymnasium:make'}\n"
    (folder / "conf/experiment/mine.yaml").write_text(text)
    argv = ("-cd", "conf", f"resume={run}", "+experiment=mine", "trainer.max_opt_steps=5")
    assert train_status(*argv) == 0


@pytest.mark.parametrize("setting", ["imports", "env.id", "env.wrappers", "evaluator.env.id"])
@pytest.mark.parametrize("module", ["numpy.f2py.__main__", "installed", "installed.__main__"])
def test_an_installed_package_without_environments_is_not_imported(
    module: str, setting: str, theirs: Theirs, folder: Path, mark: Path, capsys: Capture
) -> None:
    sys.path.append(
        str(install_module(folder, "installed", mark, "numpy", "gymnasium; extra=='x'"))
    )
    named: Any = {"env.id": f"{module}:Own", "env.wrappers": [{f"{module}:Twice": {}}]}
    named |= {"imports": [module], "evaluator.env.id": f"{module}:Own"}
    values = {setting: named[setting]}
    if setting.startswith("evaluator"):
        values = {"evaluator.env": {"id": named[setting]}}
    run = theirs(**values)
    for way in ("border-eval", "--from"):
        assert WAYS[way](run) == 2
        assert f"resolved.yaml: {setting} names the module '{module}'" in capsys.readouterr().err
    assert not mark.exists()


@pytest.mark.parametrize("requires", ["gymnasium", "Border_CLI[ray]>=0.1"])
def test_packages_with_environments_and_typed_packages_are_imported(
    requires: str, theirs: Theirs, folder: Path, mark: Path
) -> None:
    sys.path.append(str(install_module(folder / "a", "of_gymnasium", mark, requires)))
    sys.path.append(str(install_module(folder / "b", "installed", mark)))
    assert eval_status(str(theirs(imports=["of_gymnasium"]))) == 0
    assert mark.exists()
    run = tampered(folder / "theirs", folder / "typed", {"imports": ["installed"]})
    assert train_status(f"resume={run}", "imports=[installed]", MORE) == 0
    typed = (*SERIAL, "imports=[installed]", f"run_dir={run}", "resume=auto")
    assert train_status(*typed, "trainer.max_opt_steps=4") == 0


@pytest.mark.parametrize("inside", ["colleague", "lib.colleague"])
@pytest.mark.parametrize("init", [False, True])
def test_a_package_around_the_run_has_come_with_it(
    inside: str, init: bool, ran: Path, folder: Path, mark: Path, capsys: Capture
) -> None:
    name = f"bundle.{inside}"
    run = tampered(ran, folder / "bundle" / "run", {"imports": [name]})
    package = folder.joinpath(*name.split(".")[:-1])
    write_module(package, "colleague", mark)
    if init:
        (folder / "bundle" / "__init__.py").touch()
    assert eval_status(str(run)) == 2
    assert f"imports names the module '{name}'" in capsys.readouterr().err
    assert not mark.exists()
    for module in ("bundle", "bundle.lib", name):
        sys.modules.pop(module, None)


def test_a_game_of_minatar_is_no_path(ran: Path, folder: Path, mark: Path, capsys: Capture) -> None:
    pytest.importorskip("minatar")
    run = folder / "theirs"
    kwargs = {"game": str(run / "evil")}
    tampered(ran, run, {"env.id": "MinAtar/Breakout-v1", "env.kwargs": kwargs})
    write_module(run, "evil", mark)
    assert eval_status(str(run)) == 2
    assert "unknown game" in capsys.readouterr().err
    assert not mark.exists()


@pytest.mark.parametrize(
    ("name", "value"), [("run_dir", "/elsewhere"), ("resume", "auto"), ("dry_run", True)]
)
def test_where_and_how_a_run_is_written_is_never_read_from_one(
    name: str, value: Any, theirs: Theirs, capsys: Capture
) -> None:
    run = theirs(**{name: value})
    for way in ("--from", "resume", "border-eval"):
        assert WAYS[way](run) == 2
        assert f"resolved.yaml: {name} is not read from a run" in capsys.readouterr().err


def test_an_environment_that_is_given_replaces_the_saved_one(theirs: Theirs, folder: Path) -> None:
    from gymnasium.envs.classic_control import CartPoleEnv

    sys.path.append(str(install_module(folder, "of_gymnasium", folder / "mark", "gymnasium")))
    run = theirs(env__id="of_gymnasium:make")
    load_policy(run, env=CartPoleEnv)
    with pytest.raises(ConfigError, match=r"env\.id"):  # must not change on resume
        resume(run, MORE, env=CartPoleEnv)
    of_gymnasium = importlib.import_module("of_gymnasium")
    resume(run, MORE, env=of_gymnasium.make)


def test_wrappers_of_every_kind_of_environment_are_checked(folder: Path) -> None:
    config = compose("env=pong", "env.wrappers=['numpy.f2py.__main__:X']")
    write_resolved(folder / "run", resolved_yaml(config))
    with pytest.raises(
        ConfigError, match=r"env\.wrappers names the module 'numpy\.f2py\.__main__'"
    ):
        load_resolved(folder / "run")


def saved(folder: Path, **values: Any) -> RunConfig:
    """Saves settings with these values of `env` and loads them again."""
    config = compose("env=cartpole")
    for name, value in values.items():
        setattr(config.env, name, value)
    write_resolved(folder / "run", resolved_yaml(config))
    return load_resolved(folder / "run")


@pytest.mark.parametrize(
    "value",
    [
        *("/etc/passwd", "~/.ssh/id_rsa", "../other", "a/../../b", "file:///etc/passwd"),
        *(b"/etc/passwd", Path("/etc/passwd"), ["x", {"deep": ["/etc"]}]),
    ],
)
def test_a_path_that_leads_out_of_the_run_must_be_typed(folder: Path, value: Any) -> None:
    with pytest.raises(ConfigError, match=r"env\.kwargs\.path has .* leads out of the run"):
        saved(folder, kwargs={"path": value})
    with pytest.raises(ConfigError, match=r"env\.wrappers has .* leads out of the run"):
        saved(folder, wrappers=[{"TimeAwareObservation": {"path": value}}])


def test_other_texts_and_paths_of_the_run_need_nothing(folder: Path) -> None:
    inside = str(folder / "run" / "maps" / "a.xml")
    kwargs = {"map": inside, "mode": "human", "file": "maps/a.xml", "rate": "1/2", "dots": "..."}
    assert saved(folder, kwargs=kwargs).env.kwargs == kwargs  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "name",
    ["RecordVideo", "gymnasium.wrappers:RecordVideo", "gymnasium.wrappers.rendering:RecordVideo"],
)
def test_films_of_a_wrapper_must_be_typed(
    name: str, theirs: Theirs, folder: Path, capsys: Capture
) -> None:
    wrappers = [{name: {"video_folder": "films"}}]
    run = theirs(env__wrappers=wrappers)
    for way in ("border-eval", "resume", "--from"):
        assert WAYS[way](run) == 2
        said = capsys.readouterr().err
        assert f"env.wrappers has {name!r}, which writes or leads out of the run" in said
    assert not (folder / "films").exists()


def test_what_is_typed_may_write_anywhere(theirs: Theirs) -> None:
    run = theirs(env__wrappers=[{"RecordVideo": {"video_folder": "films"}}])
    typed = "env.wrappers=[{RecordVideo: {video_folder: films}}]"
    assert train_status("--from", str(run), typed, "--cfg", "job") == 0
    assert train_status("--from", str(run), "--cfg", "job", "trust=true") == 0


def test_an_argument_that_is_typed_may_lead_anywhere(theirs: Theirs) -> None:
    run = theirs(env__kwargs={"render_mode": "/dev/null"})
    assert train_status("--from", str(run), "--cfg", "job") == 2
    assert train_status("--from", str(run), "--cfg", "job", "env.kwargs.render_mode=/dev/null") == 0
    assert train_status("--from", str(run), "--cfg", "job", "env=cartpole") == 0


def on_a_cluster(theirs: Path, address: str, capsys: Capture, *typed: str) -> None:
    """Rewrites the saved settings of a run to use Ray actors at this address."""
    chosen = ("actor_manager=ray", f"actor_manager.address='{address}'", *typed)
    assert train_status("--from", str(theirs), *chosen, "--cfg", "job", "--resolve") == 0
    (theirs / SETTINGS).write_text(capsys.readouterr().out)


@pytest.mark.parametrize(
    "address",
    sampled(["127.evil.example:6379", "ray://10.0.0.7:10001", "localhost.example:1", "x"], every=4),
)
def test_a_saved_address_is_dialled_only_if_it_is_typed(
    address: str, theirs: Theirs, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    on_a_cluster(theirs(), address, capsys)
    for argv in (["resume=theirs", MORE], ["--from", "theirs", "dry_run=true"]):
        for more in ([], ["trust=true"]):
            assert train_status(*argv, *more) == 2
            said = capsys.readouterr().err
            assert f"resolved.yaml: actor_manager.address={address} is not used" in said
            assert "$RAY_ADDRESS. Type actor_manager.address=" in said
    shown = ("--from", "theirs", "--cfg", "job")
    assert train_status(*shown, f"actor_manager.address='{address}'") == 0
    assert train_status(*shown, "actor_manager.address=null") == 0
    assert train_status(*shown, "actor_manager=thread") == 0
    assert eval_status("theirs", "episodes=1") == 0  # connects to nothing
    assert eval_status("theirs", "episodes=1", "env=cartpole") == 0
    (folder / "conf/experiment").mkdir(parents=True)
    for value in (f"'{address}'", "'${oc.env:HEAD}'"):
        experiment = f"# @package _global_\nactor_manager: {{address: {value}}}\n"
        (folder / "conf/experiment/ours.yaml").write_text(experiment)
        monkeypatch.setenv("HEAD", address)
        assert train_status("-cd", "conf", *shown, "+experiment=ours") == 0
    monkeypatch.setenv("RAY_ADDRESS", address)
    assert train_status(*shown) == 0


def test_a_saved_address_of_evaluations_is_dialled_only_if_it_is_typed(
    theirs: Theirs, capsys: Capture
) -> None:
    pytest.importorskip("ray")
    override = "evaluator.address=x:1"
    on_a_cluster(
        theirs(), "auto", capsys, "evaluator.background=true", "evaluator.where=ray", override
    )
    assert train_status("--from", "theirs", "--cfg", "job") == 2
    assert f"{override} is not used" in capsys.readouterr().err
    assert train_status("--from", "theirs", "--cfg", "job", override) == 0


@pytest.mark.parametrize("address", ["auto", "127.0.0.1:6379", "ray://[::1]:10001", "localhost:1"])
def test_addresses_of_this_machine_need_nothing(
    address: str, theirs: Theirs, capsys: Capture
) -> None:
    on_a_cluster(theirs(), address, capsys)
    assert train_status("--from", "theirs", "--cfg", "job") == 0
