"""Events serialised in TensorBoard's file format. Importing its packages takes 0.1 s."""

from __future__ import annotations

import io
import struct
from collections.abc import Mapping

from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.plugins.hparams import metadata as hparams
from tensorboard.plugins.hparams.api_pb2 import STATUS_FAILURE, STATUS_SUCCESS
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData, SessionEndInfo
from tensorboard.plugins.hparams.summary_v2 import hparams_pb
from tensorboard.plugins.text.summary_v2 import text_pb
from tensorboard.summary.writer.record_writer import RecordWriter

STATUSES = {"done": STATUS_SUCCESS, "failed": STATUS_FAILURE}  # others: unknown


def file_head(
    began_s: float,
    now_s: float,
    step: int,
    settings: Mapping[str, bool | float | str],
    text: str,
    *,
    is_rewound: bool,
) -> bytes:
    """Returns the first events of an attempt's file: version, settings for HParams and a text page.

    A resumed attempt also gets the marker that makes TensorBoard discard all values from `step` on.
    """
    # An empty trial_id: by default, runs with equal settings would share a session group.
    # TensorBoard uses the first session of a run.
    session = hparams_pb(settings, trial_id="", start_time_secs=began_s)
    events = [
        Event(wall_time=began_s, file_version="brain.Event:2"),
        Event(wall_time=began_s, summary=session),
    ]
    if is_rewound:
        start = SessionLog(status=SessionLog.START)
        # Written twice, because TensorBoard ignores the first session start that it reads.
        events += 2 * [Event(wall_time=now_s, step=step, session_log=start)]
    events.append(Event(wall_time=now_s, step=step, summary=text_pb("settings", text)))
    return b"".join(map(_record, events))


def event_row(now_s: float, step: int, summary: Summary) -> bytes:
    return _record(Event(wall_time=now_s, step=step, summary=summary))


def metrics_summary(values: Mapping[str, float]) -> Summary:
    """Returns a summary with a scalar per tag."""
    scalars = [Summary.Value(tag=tag, simple_value=value) for tag, value in values.items()]
    return Summary(value=scalars)


def film_summary(gif: bytes) -> Summary:
    width, height = struct.unpack("<HH", gif[6:10])  # screen size in the GIF header
    image = Summary.Image(height=height, width=width, colorspace=3, encoded_image_string=gif)
    return Summary(value=[Summary.Value(tag="eval/film", image=image)])


def session_end(status: str, now_s: float) -> Summary | None:
    """Returns the end of the HParams session; None for a status that HParams does not have."""
    if status not in STATUSES:
        return None
    end = SessionEndInfo(status=STATUSES[status], end_time_secs=now_s)
    metadata = hparams.create_summary_metadata(HParamsPluginData(session_end_info=end))
    value = Summary.Value(
        tag=hparams.SESSION_END_INFO_TAG, metadata=metadata, tensor=hparams.NULL_TENSOR
    )
    return Summary(value=[value])


def _record(event: Event) -> bytes:
    """Returns an event framed by its length and checksums, as the file format requires."""
    framed = io.BytesIO()
    RecordWriter(framed).write(event.SerializeToString())
    return framed.getvalue()
