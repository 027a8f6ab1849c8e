"""TensorBoard event files, read back with TensorBoard's own loaders."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader
from tensorboard.backend.event_processing.plugin_event_accumulator import (
    EventAccumulator as PageAccumulator,
)
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.plugins.hparams import metadata
from tensorboard.plugins.hparams.api_pb2 import STATUS_FAILURE, STATUS_SUCCESS

from border_cli.core.output import RecordStep, RunEnd, RunInfo
from border_cli.errors import CheckpointError
from border_cli.recorder.config import StepAxis, TensorboardConfig
from border_cli.recorder.tensorboard import TensorboardRecorder, event_files
from tests.support.commands import full_disk

ABOVE_FLOAT32 = 16_777_217  # first integer that 32-bit floats cannot represent


def info(run_dir: Path, **settings: Any) -> RunInfo:
    return RunInfo(
        name="test",
        run_dir=run_dir,
        max_opt_steps=100,
        max_env_steps=None,
        max_time_s=None,
        settings=settings,
    )


def step(opt_steps: int, env_steps: int = 7) -> RecordStep:
    return RecordStep(opt_steps=opt_steps, env_steps=env_steps, time_s=1.0)


def scalars(run_dir: Path, tag: str) -> list[tuple[int, float]]:
    accumulator = EventAccumulator(str(run_dir))
    accumulator.Reload()
    return [(event.step, event.value) for event in accumulator.Scalars(tag)]


def events(run_dir: Path) -> list[Any]:
    (path,) = run_dir.glob("*tfevents*")
    return [Event.FromString(raw) for raw in RawEventFileLoader(str(path)).Load()]


@pytest.mark.parametrize(
    ("axis", "expected"),
    [(StepAxis.opt_steps, ABOVE_FLOAT32), (StepAxis.env_steps, 2**40 + 1)],
)
def test_the_axis_is_the_chosen_count_to_the_last_digit(
    tmp_path: Path, axis: StepAxis, expected: int
) -> None:
    recorder = TensorboardRecorder(TensorboardConfig(step=axis), info=info(tmp_path))
    recorder.write(step(ABOVE_FLOAT32, 2**40 + 1), {"train/loss": 1.0})
    recorder.close()
    assert scalars(tmp_path, "train/loss") == [(expected, 1.0)]


def test_the_time_of_an_event_is_that_of_the_clock_and_the_first_names_the_format(
    tmp_path: Path,
) -> None:
    times = iter([1001.0, 1002.5, 1002.5])
    recorder = TensorboardRecorder(
        TensorboardConfig(), info=info(tmp_path), wall_time_s=lambda: next(times)
    )
    recorder.write(step(1), {"train/loss": 1.0})
    recorder.close()

    head, *_, row = events(tmp_path)  # the events in between hold the settings
    assert (head.file_version, head.wall_time) == ("brain.Event:2", 1001.0)
    assert row.wall_time == 1002.5


def test_numbers_that_are_not_finite_are_kept(tmp_path: Path) -> None:
    recorder = TensorboardRecorder(TensorboardConfig(), info=info(tmp_path))
    recorder.write(step(1), {"train/loss": math.nan, "train/q": math.inf, "train/huge": 1e39})
    recorder.close()
    assert math.isnan(scalars(tmp_path, "train/loss")[0][1])
    assert scalars(tmp_path, "train/q") == [(1, math.inf)]
    assert scalars(tmp_path, "train/huge") == [(1, math.inf)]  # beyond the range of 32-bit floats


def test_a_file_whose_head_does_not_fit_on_the_disk_begins_with_the_next_row(
    tmp_path: Path,
) -> None:
    recorder = TensorboardRecorder(TensorboardConfig(), info=info(tmp_path))
    # The limit is reached within the header of the file.
    with full_disk(70), pytest.raises(OSError, match="File too large"):
        recorder.write(step(1), {"train/loss": 1.0})
    recorder.write(step(2), {"train/loss": 1.0})
    recorder.close()
    recorder.close()
    assert scalars(tmp_path, "train/loss") == [(2, 1.0)]
    assert events(tmp_path)[0].file_version == "brain.Event:2"


def test_the_first_two_groups_of_a_page_are_those_of_episodes_and_evaluations(
    tmp_path: Path,
) -> None:
    names = ["actor/0/samples_per_sec", "async/weight_lag", "episode/return", "eval/return"]
    recorder = TensorboardRecorder(TensorboardConfig(), info=info(tmp_path))
    recorder.write(step(1), dict.fromkeys(names, 1.0))
    recorder.close()
    accumulator = EventAccumulator(str(tmp_path))
    accumulator.Reload()
    # TensorBoard groups tags by their prefix, sorts the groups by name and expands the first two.
    groups = sorted({tag.partition("/")[0] for tag in accumulator.Tags()["scalars"]})
    assert groups[:2] == ["episode", "eval"]


def test_event_files_of_the_user_are_left_alone(tmp_path: Path) -> None:
    foreign = tmp_path / "events.out.tfevents.9999999999.host.1.0"
    foreign.write_bytes(b"own")
    first = TensorboardRecorder(TensorboardConfig(), info=info(tmp_path))
    first.write(step(1), {"train/loss": 1.0})
    position = first.position()
    first.close()
    second = TensorboardRecorder(TensorboardConfig(), info=info(tmp_path))
    second.rewind(position)
    second.close()
    assert foreign.read_bytes() == b"own"
    assert len(list(tmp_path.glob("*tfevents*"))) == 3


def hparams(run_dir: Path) -> dict[str, Any]:
    """Returns the settings and the status of a run, as the HParams page reads them."""
    page = PageAccumulator(str(run_dir))
    page.Reload()
    contents = page.PluginTagToContent("hparams")
    start = metadata.parse_session_start_info_plugin_data(contents["_hparams_/session_start_info"])
    session: dict[str, Any] = {"settings": dict(start.hparams)}
    ended = contents.get("_hparams_/session_end_info")
    if ended is not None:
        session["status"] = metadata.parse_session_end_info_plugin_data(ended).status
    return session


def test_the_settings_of_a_run_are_those_of_its_session(tmp_path: Path) -> None:
    settings = {"agent": "dqn", "agent.double": True, "agent.gamma": 0.99, "seed": 3}
    recorder = TensorboardRecorder(TensorboardConfig(), info=info(tmp_path, **settings))
    recorder.write(step(1), {"eval/return": 1.0})
    session = hparams(tmp_path)
    recorder.close()
    assert session.keys() == {"settings"}  # no status before the end
    values = session["settings"]
    assert (values["agent"].string_value, values["agent.double"].bool_value) == ("dqn", True)
    assert (values["agent.gamma"].number_value, values["seed"].number_value) == (0.99, 3.0)


@pytest.mark.parametrize(
    ("how", "status"),
    [("done", STATUS_SUCCESS), ("failed", STATUS_FAILURE), ("interrupted", None)],
)
def test_a_session_ends_as_its_run_did_with_the_best_score(
    tmp_path: Path, how: str, status: int | None
) -> None:
    recorder = TensorboardRecorder(TensorboardConfig(), info=info(tmp_path))
    recorder.write(step(7), {"eval/return": 1.0})
    recorder.end(RunEnd(status=how, best_score=4.5))
    recorder.close()
    assert hparams(tmp_path).get("status") == status
    assert scalars(tmp_path, "eval/best_score") == [(7, 4.5)]


def texts(run_dir: Path) -> list[tuple[int, str]]:
    """Returns the steps and texts that the page of a run shows."""
    page = PageAccumulator(str(run_dir))
    page.Reload()
    events = page.Tensors("settings")
    return [(event.step, event.tensor_proto.string_val[0].decode()) for event in events]


def test_every_attempt_has_one_text_with_its_command_and_its_settings(tmp_path: Path) -> None:
    typed = RunInfo(
        name="test",
        run_dir=tmp_path,
        max_opt_steps=9,
        max_env_steps=None,
        max_time_s=None,
        command=("border-train", "env=cartpole", "name=a b"),
        resolved="agent:\n  gamma: 0.9\n",
    )
    first = TensorboardRecorder(TensorboardConfig(), info=typed)
    write(first, [(10, 1.0), (20, 1.0)])
    position = first.position()
    write(first, [(30, 1.0)])
    first.close()
    resumed = replace(typed, command=("border-train", "resume=run"), resolved="agent: null\n")
    second = TensorboardRecorder(TensorboardConfig(), info=resumed)
    second.rewind(position)
    write(second, [(30, 2.0), (40, 2.0)])
    second.close()
    assert texts(tmp_path) == [
        (0, "    border-train env=cartpole 'name=a b'\n\n    agent:\n      gamma: 0.9\n"),
        (21, "    border-train resume=run\n\n    agent: null\n"),
    ]
    assert scalars(tmp_path, "train/loss") == [(10, 1.0), (20, 1.0), (30, 2.0), (40, 2.0)]


# Event files of several attempts, as shown by TensorBoard's own loaders

Rows = list[tuple[int, float]]


class Attempts:
    """Attempts of one run, all within the same second, and a TensorBoard page that stays open."""

    def __init__(self, run_dir: Path) -> None:
        self.info, self.folder = info(run_dir), run_dir
        self._recorders: list[TensorboardRecorder] = []
        self._page = PageAccumulator(str(self.folder))

    def begin(self) -> TensorboardRecorder:
        self._recorders.append(
            TensorboardRecorder(TensorboardConfig(), info=self.info, wall_time_s=lambda: 1000.0)
        )
        return self._recorders[-1]

    def page(self) -> Rows:
        """Returns the rows on a page that has been open since the first call."""
        self._page.Reload()
        tensors = self._page.Tensors("train/loss")
        return [(event.step, event.tensor_proto.float_val[0]) for event in tensors]

    def files(self) -> Rows:
        """Returns the rows on a page that is opened now."""
        return scalars(self.folder, "train/loss")

    def end(self) -> None:
        for recorder in self._recorders:
            recorder.close()


@pytest.fixture
def attempts(tmp_path: Path) -> Iterator[Attempts]:
    attempts_of_run = Attempts(tmp_path)
    yield attempts_of_run
    attempts_of_run.end()


def write(recorder: TensorboardRecorder, rows: Rows) -> None:
    for opt_steps, value in rows:
        recorder.write(step(opt_steps), {"train/loss": value})


def test_two_resumes_leave_neither_gap_nor_overlap_on_a_page_or_in_the_files(
    attempts: Attempts,
) -> None:
    first = attempts.begin()
    write(first, [(10, 1.0)])
    early = first.position()
    write(first, [(20, 1.0), (30, 1.0)])
    assert attempts.page() == [(10, 1.0), (20, 1.0), (30, 1.0)]
    second = attempts.begin()
    second.rewind(early)
    write(second, [(20, 2.0)])
    late = second.position()
    write(second, [(30, 2.0), (40, 2.0)])
    third = attempts.begin()
    third.rewind(late)
    write(third, [(30, 3.0)])
    assert attempts.page() == attempts.files() == [(10, 1.0), (20, 2.0), (30, 3.0)]


def test_a_missing_or_damaged_file_does_not_stop_a_run(
    attempts: Attempts, caplog: pytest.LogCaptureFixture
) -> None:
    first = attempts.begin()
    write(first, [(10, 1.0)])
    position = first.position()
    (path,) = event_files(attempts.folder)
    with path.open("ab") as file:
        file.write(b"\x05" + bytes(11) + b"\xff" * 9)  # framed like a record, but invalid
    second = attempts.begin()
    second.rewind(position)
    assert attempts.files() == [(10, 1.0)]
    path.unlink()
    third = attempts.begin()
    third.rewind(position)
    assert f"{path} lacks " in caplog.text
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


def test_a_resume_removes_the_end_of_the_earlier_attempt(attempts: Attempts) -> None:
    first = attempts.begin()
    write(first, [(10, 1.0)])
    position = first.position()
    first.end(RunEnd(status="failed"))
    second = attempts.begin()
    second.rewind(position)
    write(second, [(20, 2.0)])
    second.end(RunEnd(status="done"))
    assert hparams(attempts.folder)["status"] == STATUS_SUCCESS
    assert attempts.files() == [(10, 1.0), (20, 2.0)]
    assert attempts.page() == [(10, 1.0), (20, 2.0)]
