"""Films of episodes: frames with a caption of episode, step and return.

The suffix of a file determines the format: .mp4 (H.264) or .gif. Pillow draws, and imageio-ffmpeg
encodes; both come with the extra `video`.
"""

from __future__ import annotations

import io
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from border_cli.core.interfaces import Env, EnvFactory
from border_cli.core.spaces import EnvSpec
from border_cli.core.types import Array, Beat, Step
from border_cli.errors import ConfigError, MissingPackage, RunFailed
from border_cli.system.files import write_bytes

if TYPE_CHECKING:
    from PIL.Image import Image

EXTRA: Final = "border-cli[video]"
LEAST_SIDE: Final = 240  # pixels; smaller frames are enlarged by a whole number
GIF_SIDE: Final = 256  # pixels of the longer side without caption; GIFs compress poorly
GIF_RATE: Final = 25  # approximate frames per second of faster films; browsers slow down fast GIFs
MAX_COVERAGE: Final = 1  # Pillow's `Quantize.MAXCOVERAGE`
CLIP_FRAMES: Final = 150  # maximum for a film recorded during a run


def require_pillow(what: str) -> None:
    """Raises MissingPackage if Pillow, which draws on frames, is not installed."""
    try:
        import PIL.Image  # noqa: F401
    except ImportError as error:
        raise MissingPackage(what, EXTRA) from error


def require_ffmpeg(what: str) -> None:
    """Raises MissingPackage if ffmpeg, which encodes films, is not installed."""
    try:
        from imageio_ffmpeg import get_ffmpeg_exe

        get_ffmpeg_exe()
    except (ImportError, RuntimeError) as error:
        raise MissingPackage(what, EXTRA) from error


def draw_caption(frame: NDArray[np.uint8], text: str, longest: float = math.inf) -> Image:
    """Draws a line of text under a frame [H, W, 3]. `longest` limits the sides of the frame, in
    pixels; the text adds to the height."""
    from PIL import Image, ImageDraw, ImageFont

    picture = Image.fromarray(frame)
    enlargement = max(1, math.ceil(LEAST_SIDE / min(picture.size)))
    scale = min(enlargement, longest / max(picture.size))
    width, height = (max(1, round(side * scale)) for side in picture.size)
    resampling = Image.Resampling.NEAREST if scale > 1 else Image.Resampling.BILINEAR
    picture = picture.resize((width, height), resampling)
    points = max(10, width // 24)
    strip = 2 * points
    canvas = Image.new("RGB", (width + width % 2, height + height % 2 + strip))
    canvas.paste(picture)
    font = ImageFont.load_default(points)
    position = (points // 2, height + strip // 2)
    ImageDraw.Draw(canvas).text(position, text, fill="white", font=font, anchor="lm")
    return canvas


class FilmWriter(ABC):
    """Base class of writers, which receive the frames of episodes in order."""

    frames_per_s: float = 30.0  # must be set before the first frame

    @abstractmethod
    def add(self, frame: NDArray[np.uint8], *, episode: int, step: int, score: float) -> None:
        """Adds one frame; `score` is the return so far."""

    @abstractmethod
    def save(self) -> None:
        """Completes the film. If that fails, an earlier file is left unchanged."""

    def close(self) -> None:  # noqa: B027 - most have nothing to close
        """Discards frames that were not saved."""


def caption(episode: int, step: int, score: float) -> str:
    return f"episode {episode}   step {step}   return {score:.6g}"


class Mp4Writer(FilmWriter):
    """A writer that sends frames to ffmpeg, via a temporary file until the film is complete."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._partial = path.absolute().with_name(f".{path.name}.partial.mp4")
        self._encoder: Generator[None, bytes | None] | None = None

    def add(self, frame: NDArray[np.uint8], *, episode: int, step: int, score: float) -> None:
        from imageio_ffmpeg import write_frames

        picture = draw_caption(frame, caption(episode, step, score))
        if self._encoder is None:
            self._encoder = write_frames(
                str(self._partial),
                picture.size,
                fps=self.frames_per_s,
                quality=None,  # default of ffmpeg
                macro_block_size=2,
                ffmpeg_log_level="error",
                output_params=["-threads", "1", "-movflags", "+faststart"],
            )
            self._encoder.send(None)
        try:
            self._encoder.send(picture.tobytes())
        except OSError as error:
            raise self._failure() from error

    def save(self) -> None:
        from imageio_ffmpeg import count_frames_and_secs

        assert self._encoder is not None, "there is no frame"
        self._encoder.close()
        try:  # an encoder that fails at the end reports nothing
            count_frames_and_secs(str(self._partial))
        except (OSError, RuntimeError) as error:
            raise self._failure() from error
        self._partial.replace(self._path)

    def _failure(self) -> RunFailed:
        return RunFailed(f"ffmpeg could not write {self._path} (a full disk?)")

    def close(self) -> None:
        if self._encoder is not None:
            self._encoder.close()
        self._partial.unlink(missing_ok=True)


class GifWriter(FilmWriter):
    """A writer that collects frames in memory, one byte per pixel, and writes them at the end."""

    def __init__(self, path: Path = Path(), *, most_frames: float = math.inf) -> None:
        """If there are more than `most_frames`, retains every second, fourth, … frame."""
        self._path = path
        self._most_frames = most_frames
        self._longest_ms = 200 if math.isfinite(most_frames) else math.inf  # per frame
        self._pictures: list[Image] = []
        self._num_frames = 0
        self._every = 1  # frames per retained picture

    def add(self, frame: NDArray[np.uint8], *, episode: int, step: int, score: float) -> None:
        if self._num_frames == 0:  # the rate is final now, and may be too high for a GIF
            self._every = max(1, round(self.frames_per_s / GIF_RATE))
        if self._num_frames % self._every == 0:
            image = draw_caption(frame, caption(episode, step, score), GIF_SIDE)
            # Small objects must retain their colours, even if few colours dominate the picture.
            self._pictures.append(image.quantize(method=MAX_COVERAGE))
        self._num_frames += 1
        if len(self._pictures) > self._most_frames:
            del self._pictures[1::2]
            self._every *= 2

    def encoded(self) -> bytes:
        """Returns the content of the file."""
        first, *others = self._pictures
        # The format stores durations in hundredths of a second.
        hundredths = round(100 * self._every / self.frames_per_s)
        shown_ms = min(max(20, 10 * hundredths), self._longest_ms)
        buffer = io.BytesIO()
        first.save(buffer, "GIF", save_all=True, append_images=others, duration=shown_ms, loop=0)
        return buffer.getvalue()

    def save(self) -> None:
        _write(self._path, self.encoded())


def _write(path: Path, film: bytes) -> None:
    try:
        write_bytes(path, film)
    except OSError as error:
        raise RunFailed(f"{path} could not be written: {error.strerror}") from error


WRITERS: Final[Mapping[str, Callable[[Path], FilmWriter]]] = {
    ".mp4": Mp4Writer,
    ".gif": GifWriter,
}


def refuse_no_film(path: Path) -> None:
    """Raises ConfigError, before any episode, if no film can be written to `path`."""
    suffix = path.suffix.lower()
    if suffix not in WRITERS:
        raise ConfigError(f"video must end in {' or '.join(WRITERS)}, got {str(path)!r}")
    if not path.absolute().parent.is_dir():
        raise ConfigError(f"video={path}: no such directory: {path.absolute().parent}")
    require_pillow(f"video={path}")
    if suffix == ".mp4":
        require_ffmpeg(f"video={path}")


def film_writer(path: Path) -> FilmWriter:
    """Creates a writer for the format of the suffix."""
    return WRITERS[path.suffix.lower()](path)


class FilmedEnv(Env):
    """The environment of one episode, with a frame in the film for every observation."""

    def __init__(self, inner: Env, writer: FilmWriter, episode: int) -> None:
        self.num_envs = inner.num_envs
        self._inner = inner
        self._writer = writer
        self._episode = episode
        writer.frames_per_s = inner.frames_per_s

    def reset(self, seed: int) -> Array:
        obs = self._inner.reset(seed)
        self._steps, self._score = 0, 0.0
        self._film()
        return obs

    def step(self, action: NDArray[Any]) -> Step:
        step = self._inner.step(action)
        self._steps += 1
        self._score += float(step.reward[0])
        self._film()
        return step

    def _film(self) -> None:
        frame = self._inner.frame()
        self._writer.add(frame, episode=self._episode, step=self._steps, score=self._score)

    def close(self) -> None:
        self._inner.close()


class ShownFactory(EnvFactory):
    """A factory of the environment of one evaluated episode, shown in a window or filmed."""

    def __init__(self, inner: EnvFactory, *, episode: int, writer: FilmWriter | None) -> None:
        self._inner = inner
        self._episode = episode
        self._writer = writer

    @property
    def spec(self) -> EnvSpec:
        return self._inner.spec

    def make(
        self, *, training: bool, render: str | None = None, first: int = 0, beat: Beat | None = None
    ) -> Env:
        del first, beat
        render = "human" if self._writer is None else "rgb_array"
        env = self._inner.make(training=training, render=render, first=self._episode)
        return env if self._writer is None else FilmedEnv(env, self._writer, self._episode)
