"""Event files of several attempts, as TensorBoard's own loaders show them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from commands import full_disk
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.plugin_event_accumulator import (
    EventAccumulator as PageAccumulator,
)
from tensorboard.plugins.hparams import metadata
from tensorboard.plugins.hparams.api_pb2 import STATUS_SUCCESS

from border_cli.core.errors import CheckpointError
from border_cli.core.output import RecordStep, RunEnd, RunInfo
from border_cli.recorder.config import TensorboardConfig
from border_cli.recorder.event_files import EventFiles
from border_cli.recorder.tensorboard import TensorboardRecorder

Rows = list[tuple[int, float]]


class Attempts:
    """The attempts of one run, all within the same second; and a page that stays open."""

    def __init__(self, run_dir: Path) -> None:
        self.info = RunInfo(
            name="test", run_dir=run_dir, max_opt_steps=9, max_env_steps=None, max_time_s=None
        )
        self.folder = run_dir
        self._begun: list[TensorboardRecorder] = []
        self._page = PageAccumulator(str(self.folder))

    def begin(self) -> TensorboardRecorder:
        self._begun.append(
            TensorboardRecorder(TensorboardConfig(), info=self.info, wall_time_s=lambda: 1000.0)
        )
        return self._begun[-1]

    def page(self) -> Rows:
        """What a page shows that has been open since the first call."""
        self._page.Reload()
        tensors = self._page.Tensors("train/loss")
        return [(each.step, each.tensor_proto.float_val[0]) for each in tensors]

    def files(self) -> Rows:
        """What one shows that is opened now."""
        loaded = EventAccumulator(str(self.folder))
        loaded.Reload()
        return [(each.step, each.value) for each in loaded.Scalars("train/loss")]

    def end(self) -> None:
        for each in self._begun:
            each.close()


@pytest.fixture
def attempts(tmp_path: Path) -> Iterator[Attempts]:
    begun = Attempts(tmp_path)
    yield begun
    begun.end()


def write(recorder: TensorboardRecorder, rows: Rows) -> None:
    for opt_steps, value in rows:
        step = RecordStep(opt_steps=opt_steps, env_steps=7, time_s=1.0)
        recorder.write(step, {"train/loss": value})


def test_two_resumes_leave_neither_gap_nor_overlap_on_a_page_or_in_the_files(
    attempts: Attempts,
) -> None:
    first = attempts.begin()
    write(first, [(10, 1.0), (20, 1.0)])
    early = first.position()
    assert early["file"] == EventFiles(attempts.folder).all()[0].name
    assert early["step"] == 20
    write(first, [(30, 1.0), (40, 1.0)])
    assert attempts.page() == [(10, 1.0), (20, 1.0), (30, 1.0), (40, 1.0)]

    second = attempts.begin()
    second.rewind(early)
    assert attempts.page() == [(10, 1.0), (20, 1.0)]
    write(second, [(30, 2.0)])
    late = second.position()
    write(second, [(40, 2.0), (50, 2.0)])
    assert attempts.page() == [(10, 1.0), (20, 1.0), (30, 2.0), (40, 2.0), (50, 2.0)]

    third = attempts.begin()
    third.rewind(late)
    write(third, [(40, 3.0)])
    expected = [(10, 1.0), (20, 1.0), (30, 2.0), (40, 3.0)]
    assert attempts.page() == expected
    assert attempts.files() == expected


def test_all_of_a_later_attempt_goes_where_a_run_goes_back_behind_it(attempts: Attempts) -> None:
    first = attempts.begin()
    write(first, [(10, 1.0)])
    early = first.position()
    for value in (2.0, 3.0):
        again = attempts.begin()
        again.rewind(early)
        write(again, [(20, value), (30, value)])
        expected = [(10, 1.0), (20, value), (30, value)]
        assert attempts.page() == expected
        assert attempts.files() == expected
    kept = [each for each in attempts.folder.iterdir() if "tfevents" not in each.name]
    assert len(kept) == 1  # of the second attempt: nothing that was saved is lost
    assert kept[0].name.startswith("superseded-")


def test_a_row_at_the_step_of_the_last_that_stays_goes_and_that_one_stays(
    attempts: Attempts,
) -> None:
    """As the last window of a run, and an evaluation beside the learner that began before."""
    first = attempts.begin()
    write(first, [(10, 1.0), (20, 1.0)])
    position = first.position()
    write(first, [(20, 9.0), (10, 9.0)])
    assert attempts.page() == [(10, 1.0), (20, 1.0), (20, 9.0), (10, 9.0)]
    second = attempts.begin()
    second.rewind(position)
    write(second, [(30, 2.0)])
    assert attempts.page() == [(10, 1.0), (20, 1.0), (30, 2.0)]
    assert attempts.files() == [(10, 1.0), (20, 1.0), (30, 2.0)]


def test_rows_that_waited_for_room_at_the_checkpoint_are_there_once(attempts: Attempts) -> None:
    first = attempts.begin()
    write(first, [(10, 1.0)])
    (path,) = EventFiles(attempts.folder).all()
    with full_disk(path.stat().st_size + 5):
        with pytest.raises(OSError, match="File too large"):
            write(first, [(20, 1.0)])
        position = first.position()
        second = attempts.begin()
        second.rewind(position)
    write(second, [(30, 1.0)])
    assert attempts.files() == [(10, 1.0), (20, 1.0), (30, 1.0)]

    first.flush()  # the row reaches the file of the first attempt after all
    third = attempts.begin()
    third.rewind(position)
    write(third, [(30, 1.0)])
    assert attempts.files() == [(10, 1.0), (20, 1.0), (30, 1.0)]


def test_the_first_write_of_a_resumed_run_survives_a_full_disk(attempts: Attempts) -> None:
    first = attempts.begin()
    write(first, [(10, 1.0)])
    position = first.position()
    write(first, [(20, 1.0)])
    with full_disk(0):
        second = attempts.begin()
        second.rewind(position)
        with pytest.raises(OSError, match="File too large"):
            write(second, [(20, 2.0)])
    second.flush()
    assert attempts.files() == [(10, 1.0), (20, 2.0)]


def test_a_file_that_is_gone_or_damaged_keeps_no_run_from_going_on(
    attempts: Attempts, caplog: pytest.LogCaptureFixture
) -> None:
    first = attempts.begin()
    write(first, [(10, 1.0)])
    position = first.position()
    (path,) = EventFiles(attempts.folder).all()
    with path.open("ab") as file:
        file.write(b"\x05" + bytes(11) + b"\xff" * 9)  # framed as a record, and none
    second = attempts.begin()
    second.rewind(position)
    assert attempts.files() == [(10, 1.0)]
    path.unlink()
    third = attempts.begin()
    third.rewind(position)
    assert f"{path} is missing" in caplog.text
    write(third, [(20, 1.0)])
    assert attempts.files() == [(20, 1.0)]


def test_a_position_that_names_another_file_is_refused_and_nothing_is_cut(
    attempts: Attempts,
) -> None:
    other = attempts.info.run_dir / "mine"
    other.write_bytes(b"keep")
    for name in ("mine", "tensorboard/../mine", "../mine"):
        with pytest.raises(CheckpointError, match="is not an event file of the run"):
            attempts.begin().rewind({"file": name, "size": 0, "step": 1})
    assert other.read_bytes() == b"keep"


def test_a_run_of_an_earlier_version_goes_on_in_its_folder_under_its_names(tmp_path: Path) -> None:
    """As such a version wrote it: in `tensorboard/`, and without a change of any name."""
    plain = Attempts(tmp_path / "plain")
    written = plain.begin()
    written.write(RecordStep(opt_steps=10, env_steps=7, time_s=1.0), {"train/loss": 1.0})
    position = written.position()
    plain.end()
    (before,) = EventFiles(plain.folder).all()
    run_dir = tmp_path / "run"
    (run_dir / "tensorboard").mkdir(parents=True)
    name = before.name.removesuffix(".border")
    before.rename(run_dir / "tensorboard" / name)

    attempts = Attempts(run_dir)
    again = attempts.begin()
    again.rewind({**position, "file": f"tensorboard/{name}"})
    again.write(RecordStep(opt_steps=20, env_steps=7, time_s=1.0), {"async/weight_lag": 2.0})
    assert again.position()["file"].startswith("tensorboard/")
    attempts.end()
    assert not list(run_dir.glob("*tfevents*"))
    loaded = EventAccumulator(str(run_dir / "tensorboard"))
    loaded.Reload()
    assert set(loaded.Tags()["scalars"]) == {"train/loss", "async/weight_lag"}


def test_the_end_of_an_attempt_goes_where_a_run_is_resumed(attempts: Attempts) -> None:
    first = attempts.begin()
    write(first, [(10, 1.0)])
    position = first.position()
    first.end(RunEnd(status="failed"))
    second = attempts.begin()
    second.rewind(position)
    write(second, [(20, 2.0)])
    second.end(RunEnd(status="done"))
    page = PageAccumulator(str(attempts.folder))
    page.Reload()
    contents = page.PluginTagToContent("hparams")["_hparams_/session_end_info"]
    ended = metadata.parse_session_end_info_plugin_data(contents)
    assert ended.status == STATUS_SUCCESS
    assert attempts.files() == [(10, 1.0), (20, 2.0)]
    assert attempts.page() == [(10, 1.0), (20, 2.0)]
