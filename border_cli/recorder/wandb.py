"""Weights & Biases: offline, for `wandb sync`, where nobody has logged in."""

from __future__ import annotations

import netrc
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from typing import Any

import wandb

HOST = "api.wandb.ai"


class Client:
    """One run, in the group of its sweep."""

    def __init__(self, state: dict[str, Any]) -> None:
        self._state = state

    def begin(self, attempt: int, facts: dict[str, Any]) -> None:
        self._state.setdefault("run", token_hex(4))
        sweep, git = facts["group"], facts["git"] or {}
        self._run = wandb.init(
            project=facts["project"] or os.environ.get("WANDB_PROJECT", "border_cli"),
            id=self._state["run"],
            name=facts["name"],
            group=None if sweep is None else Path(sweep).name,
            config={
                **facts["settings"],
                "command": " ".join(facts["command"]),
                "git_commit": git.get("commit"),
                "attempt": attempt,
            },
            allow_val_change=True,
            resume="allow",
            reinit="finish_previous",
            mode=_mode(),
            settings=wandb.Settings(silent=True, console="off", x_disable_stats=True),
        )
        self._run.define_metric("opt_steps")
        self._run.define_metric("*", step_metric=facts["step"])

    def rows(self, attempt: int, rows: Sequence[dict[str, Any]]) -> None:
        for row in rows:
            counters = {name: row[name] for name in ("opt_steps", "env_steps", "time_s")}
            self._run.log({**row["metrics"], **counters, "attempt": attempt})

    def artifact(self, path: Path, folder: str) -> None:
        artifact = wandb.Artifact(f"{folder}-{self._state['run']}-{path.stem}", type=folder)
        artifact.add_file(str(path))
        self._run.log_artifact(artifact)

    def end(self, facts: dict[str, Any]) -> None:
        self._run.summary.update({"status": facts["status"], "exit_reason": facts["reason"]})
        self._run.finish(exit_code=0 if facts["status"] == "done" else 1)


def _mode() -> Any:
    if "WANDB_MODE" in os.environ:
        return os.environ["WANDB_MODE"]
    logged_in = "WANDB_API_KEY" in os.environ
    with suppress(OSError, netrc.NetrcParseError):
        logged_in = logged_in or HOST in netrc.netrc().hosts
    return "online" if logged_in else "offline"
