"""Trains the tasks of the gallery, and writes docs/gallery.md with a film and curves of each.

    python docs/make_gallery.py                    all tasks, with runs in outputs/gallery
    python docs/make_gallery.py --runs DIR         takes the sweeps DIR/TASK that are finished there
    python docs/make_gallery.py --only TASK …      these tasks; the others stay as they are
    python docs/make_gallery.py --page             only the page, from docs/gallery/figures.json

Needs the extras `box2d`, `minatar`, `plot`, `render` and `video`, and no display. A sweep that was
stopped is continued, and finished runs are not trained again.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Any

from PIL import Image, ImageSequence

DOCS = Path(__file__).parent
ROOT = DOCS.parent
sys.path.insert(0, str(ROOT))

from benchmarks.machine import facts  # noqa: E402 - found in the clone
from benchmarks.markdown import table  # noqa: E402

COMMANDS = Path(sys.executable).parent
FOLDER = DOCS / "gallery"
FIGURES = FOLDER / "figures.json"
PAGE = DOCS / "gallery.md"
EPISODES = 100  # fresh episodes that judge a model
FRESH = 10_000  # added to the seed of a run, for episodes that it has not seen
FILM_BYTES = 300_000
ALL_BYTES = 2_500_000
COLUMNS = 3  # pictures in a row at the top of the page

TEMPLATE = """\
# Gallery

Short tasks, each learned by the one command shown. `python docs/make_gallery.py` trained them,
filmed and drew them, and wrote this page.

$pictures

Scores are means over $episodes fresh episodes of the best model of each seed, played greedily.
Curves show the mean over seeds with its 95 % interval, and thin lines are single seeds. With
`run_dir=my_task`, these commands make the film and the curves:

```sh
border-eval my_task/seed-0 video=film.gif episodes=1 seed=10000
border-plot my_task --out curves.svg
```

$sections

Processor: $machine. Versions: $versions.
"""


@dataclass(frozen=True, kw_only=True)
class Task:
    """A sweep over seeds, and how it is shown."""

    title: str
    text: str
    typed: tuple[str, ...]
    film: tuple[str, ...] = ()  # settings of the film alone

    @property
    def command(self) -> str:
        """The command as a user types it."""
        return f"border-train -m {' '.join(self.typed)}"


TASKS = {
    "cartpole": Task(
        title="CartPole",
        text="A cart moves left and right to balance a pole. DQN sees the positions and speeds.",
        typed=("agent=dqn", "env=cartpole", "seed=0,1,2"),
        film=("env.max_episode_steps=200",),
    ),
    "acrobot": Task(
        title="Acrobot",
        text="PPO swings two links up by the joint between them. Each step costs 1.",
        typed=("agent=ppo", "env=acrobot", "trainer.max_env_steps=60000",
               "trainer.eval_interval_env_steps=10000", "seed=0,1"),
    ),
    "pendulum": Task(
        title="Pendulum",
        text="SAC swings a pendulum up and holds it there, with continuous torques.",
        typed=("agent=sac", "env=pendulum", "trainer.max_env_steps=10000", "seed=0,1,2"),
    ),
    "mountaincar_continuous": Task(
        title="MountainCarContinuous",
        text="TD3 drives a weak car up a hill, after it has gained speed on the other side.",
        typed=("agent=td3", "env=mountaincar_continuous", "trainer.max_env_steps=6000",
               "seed=0,1,2"),
    ),
    "cliffwalking": Task(
        title="CliffWalking",
        text="Any id of Gymnasium works: DQN walks along a cliff. A fall costs 100, a step 1.",
        typed=("agent=dqn", "env.id=CliffWalking-v1", "trainer.max_env_steps=8000", "seed=0,1,2"),
    ),
    "minatar_breakout": Task(
        title="MinAtar Breakout",
        text="PPO learns from images with a convolutional network. Each brick is worth 1.",
        typed=("agent=ppo", "env=minatar_breakout", "trainer.max_env_steps=300000",
               "trainer.eval_interval_env_steps=50000", "seed=0,1"),
        film=("env.max_episode_steps=200",),
    ),
}  # fmt: skip


def call(name: str, *words: str | Path) -> str:
    """Runs one of our commands without a window, and returns its standard output."""
    return subprocess.run(
        [COMMANDS / name, *words],
        env={**os.environ, "SDL_VIDEODRIVER": "dummy"},
        check=True, stdout=subprocess.PIPE, text=True,
    ).stdout  # fmt: skip


def make(name: str, task: Task, runs: Path) -> dict[str, Any]:
    """Trains a task if necessary, and writes its film, picture and curves. Returns its figures."""
    sweep = runs / name
    train = ("-m", *task.typed, f"run_dir={sweep}", "resume=auto", "hydra.launcher.jobs=1")
    call("border-train", *train, "quiet=true")
    folders = sorted(path.parent for path in sweep.glob("*/run.json"))
    scores = [evaluate(folder, seed, episodes=EPISODES) for seed, folder in enumerate(folders)]
    best = scores.index(max(scores))
    film = FOLDER / f"{name}.gif"
    shown = evaluate(folders[best], best, *task.film, f"video={film}", episodes=1)
    shorten(film)
    write_picture(film)
    call("border-plot", sweep, "--out", FOLDER / f"{name}.svg", "--size", "4.5x3")
    return {"scores": scores, "filmed": best, "return": shown}


def evaluate(run_dir: Path, seed: int, *words: str, episodes: int) -> float:
    """Returns the mean return of the best model over fresh episodes."""
    fresh = (f"seed={FRESH + seed}", f"episodes={episodes}")
    output = call("border-eval", run_dir, *words, *fresh, "--json")
    return round(float(json.loads(output.splitlines()[-1])["mean"]), 1)


def shorten(film: Path, most_bytes: int = FILM_BYTES) -> None:
    """Removes every second frame of a film until it is small enough; its duration stays."""
    while film.stat().st_size > most_bytes:
        with Image.open(film) as whole:
            duration_ms = 2 * whole.info["duration"]
            first, *others = [frame.copy() for frame in ImageSequence.Iterator(whole)][::2]
        first.save(film, save_all=True, append_images=others, duration=duration_ms, loop=0)


def write_picture(film: Path) -> None:
    """Writes the frame in the middle of a film as a still picture."""
    with Image.open(film) as whole:
        whole.seek(whole.n_frames // 2)
        whole.convert("P", palette=Image.Palette.ADAPTIVE).save(
            film.with_suffix(".png"), optimize=True
        )


def page(figures: Mapping[str, Any]) -> str:
    """Returns the page of the tasks that have figures."""
    tasks = {name: task for name, task in TASKS.items() if name in figures["tasks"]}
    machine = figures["machine"]
    packages = ("python", "torch", "numpy", "gymnasium")
    return Template(TEMPLATE).substitute(
        pictures=_pictures(tasks),
        sections="\n\n".join(
            _section(name, task, figures["tasks"][name]) for name, task in tasks.items()
        ),
        episodes=EPISODES,
        machine=machine["cpu"],
        versions=", ".join(f"{package} {machine[package]}" for package in packages),
    )


def _pictures(tasks: Mapping[str, Task]) -> str:
    cells = [
        f"[![{task.title}](gallery/{name}.png)](#{task.title.lower().replace(' ', '-')})"
        for name, task in tasks.items()
    ]
    rows = [cells[start : start + COLUMNS] for start in range(0, len(cells), COLUMNS)]
    return table([""] * COLUMNS, rows)


def _section(name: str, task: Task, figures: Mapping[str, Any]) -> str:
    scores = figures["scores"]
    listed = ", ".join(f"{score:g}" for score in scores)
    length = [word for word in task.film if word.startswith("env.max_episode_steps=")]
    steps = f", cut after {length[0].partition('=')[2]} steps" if length else ""
    return f"""\
## {task.title}

{task.text}

```sh
{task.command}
```

![An episode of {task.title}](gallery/{name}.gif)
![Curves of {task.title}](gallery/{name}.svg)

Best models: mean return {statistics.fmean(scores):.1f} over {len(scores)} seeds ({listed}).
Film: an episode of seed {figures["filmed"]}{steps}, return {figures["return"]:g}."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=Path, default=ROOT / "outputs" / "gallery", metavar="DIR")
    parser.add_argument("--only", nargs="+", choices=TASKS, default=[*TASKS], metavar="TASK")
    parser.add_argument("--page", action="store_true", help="write the page without any run")
    arguments = parser.parse_args()
    FOLDER.mkdir(exist_ok=True)
    if not arguments.page:
        saved = json.loads(FIGURES.read_text(encoding="utf-8")) if FIGURES.exists() else {}
        made = saved.get("tasks", {})
        for name in arguments.only:
            made[name] = make(name, TASKS[name], arguments.runs.resolve())
            figures = {"machine": facts(), "tasks": made}
            FIGURES.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(page(json.loads(FIGURES.read_text(encoding="utf-8"))), encoding="utf-8")


if __name__ == "__main__":
    main()
