"""Event files, read back with TensorBoard's own loader."""

from __future__ import annotations

import math
import resource
import subprocess
import sys
import threading
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
from border_cli.recorder.config import StepAxis, TensorboardConfig
from border_cli.recorder.tensorboard import TensorboardRecorder
from border_cli.registry import RECORDERS

ABOVE_FLOAT32 = 16_777_217  # the first integer that 32-bit floats cannot hold


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
    loaded = EventAccumulator(str(run_dir))
    loaded.Reload()
    return [(each.step, each.value) for each in loaded.Scalars(tag)]


def events(run_dir: Path) -> list[Any]:
    (path,) = run_dir.glob("*tfevents*")
    return [Event.FromString(raw) for raw in RawEventFileLoader(str(path)).Load()]


def test_tensorboard_reads_every_scalar_of_every_row(tmp_path: Path) -> None:
    recorder = RECORDERS.build(TensorboardConfig(), info=info(tmp_path), console=None)
    for opt_steps in range(300):
        recorder.write(step(opt_steps), {"train/loss": opt_steps / 2, "eval/return": -1.0})
    recorder.close()

    assert scalars(tmp_path, "train/loss") == [(each, each / 2) for each in range(300)]
    assert scalars(tmp_path, "eval/return") == [(each, -1.0) for each in range(300)]


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


def test_a_row_can_be_read_before_the_recorder_is_closed(tmp_path: Path) -> None:
    recorder = TensorboardRecorder(TensorboardConfig(), info=info(tmp_path))
    recorder.write(step(3), {"train/loss": 1.5})
    assert scalars(tmp_path, "train/loss") == [(3, 1.5)]
    recorder.close()


def test_the_time_of_an_event_is_that_of_the_clock_and_the_first_names_the_format(
    tmp_path: Path,
) -> None:
    times = iter([1001.0, 1002.5])
    recorder = TensorboardRecorder(
        TensorboardConfig(), info=info(tmp_path), wall_time_s=lambda: next(times)
    )
    recorder.write(step(1), {"train/loss": 1.0})
    recorder.close()

    head, _, row = events(tmp_path)  # the one between holds the settings
    assert (head.file_version, head.wall_time) == ("brain.Event:2", 1001.0)
    assert row.wall_time == 1002.5


def test_numbers_that_are_not_finite_are_kept(tmp_path: Path) -> None:
    recorder = TensorboardRecorder(TensorboardConfig(), info=info(tmp_path))
    recorder.write(step(1), {"train/loss": math.nan, "train/q": math.inf, "train/huge": 1e39})
    recorder.close()
    assert math.isnan(scalars(tmp_path, "train/loss")[0][1])
    assert scalars(tmp_path, "train/q") == [(1, math.inf)]
    assert scalars(tmp_path, "train/huge") == [(1, math.inf)]  # past the range of 32 bits


def test_no_row_is_lost_while_the_disk_is_full_for_a_time(tmp_path: Path) -> None:
    recorder = TensorboardRecorder(TensorboardConfig(), info=info(tmp_path))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (70, hard))  # in the middle of the first records
    try:
        for opt_steps in (1, 2):
            with pytest.raises(OSError, match="File too large"):
                recorder.write(step(opt_steps), {"train/loss": 1.0})
        with pytest.raises(OSError, match="File too large"):
            recorder.flush()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    recorder.write(step(3), {"train/loss": 1.0})
    recorder.close()
    recorder.close()
    assert scalars(tmp_path, "train/loss") == [(1, 1.0), (2, 1.0), (3, 1.0)]


def test_it_needs_no_thread(tmp_path: Path) -> None:
    before = threading.enumerate()
    recorder = TensorboardRecorder(TensorboardConfig(), info=info(tmp_path))
    recorder.write(step(1), {"train/loss": 1.0})
    assert threading.enumerate() == before
    recorder.close()


def test_importing_it_loads_neither_torch_nor_tensorflow() -> None:
    code = (
        "import sys, border_cli.recorder.tensorboard\n"
        "print([name for name in ('torch', 'tensorflow') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_an_event_file_that_was_deleted_is_one_that_tensorboard_reads_again(tmp_path: Path) -> None:
    recorder = TensorboardRecorder(TensorboardConfig(), info=info(tmp_path))
    recorder.write(step(1), {"train/loss": 1.0})
    for each in tmp_path.iterdir():
        each.unlink()
    recorder.write(step(2), {"train/loss": 2.0})
    recorder.close()
    assert scalars(tmp_path, "train/loss") == [(2, 2.0)]
    assert events(tmp_path)[0].file_version == "brain.Event:2"


def test_the_first_two_groups_of_a_page_are_those_of_episodes_and_evaluations(
    tmp_path: Path,
) -> None:
    names = ["actor/0/samples_per_sec", "async/weight_lag", "episode/return", "eval/return"]
    names += ["time/update", "train/loss", "mine/actor/x"]
    recorder = TensorboardRecorder(TensorboardConfig(), info=info(tmp_path))
    recorder.write(step(1), dict.fromkeys(names, 1.0))
    recorder.close()
    loaded = EventAccumulator(str(tmp_path))
    loaded.Reload()
    tags = loaded.Tags()["scalars"]
    # TensorBoard groups by what stands before the first slash, sorts by name and opens two.
    assert sorted({each.partition("/")[0] for each in tags})[:2] == ["episode", "eval"]
    assert {each.removeprefix("system/") for each in tags} == set(names)


def test_event_files_of_the_user_are_left_alone(tmp_path: Path) -> None:
    own = tmp_path / "events.out.tfevents.9999999999.host.1.0"
    own.write_bytes(b"own")
    first = TensorboardRecorder(TensorboardConfig(), info=info(tmp_path))
    first.write(step(1), {"train/loss": 1.0})
    position = first.position()
    first.close()
    second = TensorboardRecorder(TensorboardConfig(), info=info(tmp_path))
    second.rewind(position)
    second.close()
    assert own.read_bytes() == b"own"
    assert len(list(tmp_path.glob("*tfevents*"))) == 3


def hparams(run_dir: Path) -> dict[str, Any]:
    """What the HParams page reads of one run."""
    page = PageAccumulator(str(run_dir))
    page.Reload()
    contents = page.PluginTagToContent("hparams")
    start = metadata.parse_session_start_info_plugin_data(contents["_hparams_/session_start_info"])
    found: dict[str, Any] = {"settings": dict(start.hparams)}
    ended = contents.get("_hparams_/session_end_info")
    if ended is not None:
        found["status"] = metadata.parse_session_end_info_plugin_data(ended).status
    return found


def test_the_settings_of_a_run_are_those_of_its_session(tmp_path: Path) -> None:
    settings = {"agent": "dqn", "agent.double": True, "agent.gamma": 0.99, "seed": 3}
    recorder = TensorboardRecorder(TensorboardConfig(), info=info(tmp_path, **settings))
    recorder.write(step(1), {"eval/return": 1.0})
    found = hparams(tmp_path)
    recorder.close()
    assert found.keys() == {"settings"}  # it has not ended
    values = found["settings"]
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


def test_a_run_without_an_evaluation_has_no_best_score(tmp_path: Path) -> None:
    recorder = TensorboardRecorder(TensorboardConfig(), info=info(tmp_path))
    recorder.end(RunEnd(status="failed"))
    recorder.close()
    assert hparams(tmp_path)["status"] == STATUS_FAILURE
    with pytest.raises(KeyError, match="eval/best_score"):
        scalars(tmp_path, "eval/best_score")
