"""Films in all formats: frames, lines of text, and files that cannot be written."""

from __future__ import annotations

import io
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from border_cli.errors import ConfigError, RunFailed
from border_cli.evaluator import film
from tests.support.commands import full_disk

Image = pytest.importorskip("PIL.Image", reason='pip install "border-cli[video]"')

HEIGHT, WIDTH = 250, 300
EPISODES, STEPS = 3, 4


def frame(episode: int, step: int) -> NDArray[np.uint8]:
    """Returns a gray frame. All frames differ, and none is black."""
    return np.full((HEIGHT, WIDTH, 3), 40 + (60 * episode + 4 * step) % 200, np.uint8)


def write_film(writer: film.FilmWriter) -> None:
    with closing(writer):
        for episode in range(EPISODES):
            for step in range(STEPS):
                writer.add(frame(episode, step), episode=episode, step=step, score=-1.5)
        writer.save()


def decode_frames(path: Path, size: tuple[int, int]) -> NDArray[np.uint8]:
    """Decodes the frames of a film. [F, H, W, 3]"""
    from imageio_ffmpeg import get_ffmpeg_exe

    decode = [get_ffmpeg_exe(), "-loglevel", "error", "-i", str(path), "-f", "rawvideo"]
    raw = subprocess.run([*decode, "-pix_fmt", "rgb24", "-"], check=True, capture_output=True)
    return np.frombuffer(raw.stdout, np.uint8).reshape(-1, size[1], size[0], 3)


EXPECTED = [frame(episode, step)[0, 0, 0] for episode in range(EPISODES) for step in range(STEPS)]


def assert_shown(frames: NDArray[np.uint8]) -> None:
    """Checks the gray value of all frames, and the white text on black below them."""
    np.testing.assert_allclose(frames[:, 100, 150, 0].astype(int), EXPECTED, atol=6)
    caption = frames[:, HEIGHT:]
    assert (caption.max(axis=(1, 2, 3)) > 200).all()
    assert (np.median(caption, axis=(1, 2, 3)) < 20).all()


def test_an_mp4_has_every_frame_of_every_episode(tmp_path: Path) -> None:
    pytest.importorskip("imageio_ffmpeg")
    write_film(film.film_writer(tmp_path / "film.mp4"))
    assert_shown(decode_frames(tmp_path / "film.mp4", (WIDTH, HEIGHT + 24)))
    assert [file.name for file in tmp_path.iterdir()] == ["film.mp4"]


def test_a_gif_has_every_frame_and_the_rate_of_the_environment(tmp_path: Path) -> None:
    writer = film.film_writer(tmp_path / "film.gif")
    writer.frames_per_s = 20
    write_film(writer)
    with Image.open(tmp_path / "film.gif") as gif:
        assert gif.n_frames == EPISODES * STEPS
        assert gif.info["duration"] == 50  # ms
        gif.seek(5)
        assert gif.size == (256, 213 + 1 + 20)
        assert gif.convert("RGB").getpixel((100, 100))[0] == pytest.approx(EXPECTED[5], abs=6)


def test_a_short_film_keeps_the_whole_span() -> None:
    writer = film.GifWriter(most_frames=10)
    for step in range(36):
        writer.add(frame(0, step), episode=0, step=step, score=-1.5)
    with Image.open(io.BytesIO(writer.encoded())) as gif:
        assert 5 <= gif.n_frames <= 10


def test_a_film_that_is_broken_off_leaves_no_file_and_no_process(tmp_path: Path) -> None:
    pytest.importorskip("imageio_ffmpeg")
    writer = film.film_writer(tmp_path / "film.mp4")
    writer.add(frame(0, 0), episode=0, step=0, score=0)
    writer.close()
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("film.avi", r"video must end in \.mp4 or \.gif, got .*film\.avi"),
        ("film.png", r"video must end in \.mp4 or \.gif, got .*film\.png"),
        ("nowhere/film.gif", r"no such directory: .*nowhere"),
    ],
)
def test_a_film_that_cannot_be_written_is_refused_at_once(
    tmp_path: Path, name: str, said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        film.refuse_no_film(tmp_path / name)


def test_the_name_of_a_film_may_have_a_colon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("imageio_ffmpeg")
    monkeypatch.chdir(tmp_path)
    write_film(film.film_writer(Path("12:30.mp4")))
    assert [file.name for file in tmp_path.iterdir()] == ["12:30.mp4"]


@pytest.mark.parametrize("suffix", [*film.WRITERS])
def test_on_a_full_disk_the_film_before_stays(tmp_path: Path, suffix: str) -> None:
    if suffix == ".mp4":
        pytest.importorskip("imageio_ffmpeg")
    path = tmp_path / f"film{suffix}"
    path.write_text("before")
    with full_disk(500), pytest.raises(RunFailed, match=rf"film\{suffix}"):
        write_film(film.film_writer(path))
    assert [file.name for file in tmp_path.iterdir()] == [path.name]
    assert path.read_text() == "before"


def test_small_frames_are_enlarged_by_a_whole_number() -> None:
    small: Any = np.zeros((84, 100, 3), np.uint8)
    assert film.draw_caption(small, "text").size == (300, 252 + 24)
