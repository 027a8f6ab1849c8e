"""Files deleted during a run end it with an error that names them, and are not recreated."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from border_cli.errors import RunDeleted
from border_cli.run.lock import RunLock
from border_cli.run.status import RunRecord
from tests.support.small_run import SmallRun

MakeRun = Callable[..., SmallRun]


@pytest.mark.parametrize(
    "what", ["checkpoints", "checkpoints/replay", "checkpoints/replay/rows-0000000000-*"]
)
def test_a_save_names_what_it_relies_on_and_is_gone(case: SmallRun, what: str) -> None:
    case.save(10, push=30)
    case.store.check()
    (gone,) = case.run_dir.glob(what)
    shutil.rmtree(gone) if gone.is_dir() else gone.unlink()
    assert not case.save(20, push=20)
    with pytest.raises(RunDeleted, match=rf"^{gone}.* was deleted or moved while the run was"):
        case.store.check()
    assert case.store.report.failures == 0


@pytest.mark.parametrize("moved", [False, True])
def test_a_name_relative_to_an_open_directory_is_reported_as_a_path(
    case: SmallRun, moved: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(*_: object) -> None:
        if moved:
            case.run_dir.rename(case.run_dir.with_name("moved"))
        raise FileNotFoundError(2, "No such file or directory", "checkpoints")

    monkeypatch.setattr(case.store._folders, "write_checkpoint", write)
    assert not case.save(10)
    gone = case.run_dir if moved else case.run_dir / "checkpoints"
    with pytest.raises(RunDeleted, match=f"^{gone} was deleted or moved"):
        case.store.check()


def test_a_record_that_is_gone_is_named_and_not_written_again(tmp_path: Path) -> None:
    record = RunRecord(tmp_path)
    record.begin()
    gone = tmp_path / "run.json"
    gone.unlink()
    for write in (record.record_counters, lambda _: record.end("done", "max_opt_steps reached")):
        with pytest.raises(RunDeleted, match=f"^{gone} was deleted or moved while the run was"):
            write({"opt_steps": 50})
    assert not gone.exists()


def test_a_run_that_replaced_the_deleted_one_is_not_touched(
    make_run: MakeRun, tmp_path: Path
) -> None:
    run_dir = tmp_path / "run"
    with RunLock(run_dir) as lock:
        case, record = (
            make_run(run_dir, check_lock=lock.check),
            RunRecord(run_dir, check_lock=lock.check),
        )
        record.begin()
        case.save(10, push=30)
        shutil.rmtree(run_dir)
        for gone in (run_dir, run_dir / "run.lock"):
            assert not case.save(20)
            with pytest.raises(RunDeleted, match=f"^{gone} was deleted"):
                case.store.check()
            with pytest.raises(RunDeleted, match=f"^{gone} was deleted"):
                record.end("done", "max_opt_steps reached")
            run_dir.mkdir(exist_ok=True)
        with RunLock(run_dir):
            assert not case.save(20)
            assert [path.name for path in run_dir.iterdir()] == ["run.lock"]
