"""Delivery to Weights & Biases; offline, for `wandb sync`, unless the user is logged in."""

from __future__ import annotations

import json
import netrc
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from typing import Any, Literal
from urllib.parse import urlsplit

import wandb


class WandbRun:
    """A run in Weights & Biases, in the group of its sweep."""

    def __init__(
        self, state: dict[str, Any], facts: dict[str, Any], save_state: Callable[[], None]
    ) -> None:
        self._id = state.setdefault("run", token_hex(4))
        save_state()
        self._run = wandb.init(
            project=facts["project"] or os.environ.get("WANDB_PROJECT", "border_cli"),
            id=self._id,
            allow_val_change=True,
            reinit="finish_previous",
            mode=_mode(wandb.setup().settings),
            settings=wandb.Settings(
                silent=True, console="off", x_disable_stats=True, disable_git=True
            ),
            # wandb would resolve `wandb-artifact://HOST/…` in a setting and log in at HOST.
            **json.loads(json.dumps(facts["init"]).replace("artifact://", "artifact:")),
        )
        self._run.define_metric("*", step_metric=facts["step"])

    def rows(self, rows: list[dict[str, Any]]) -> None:
        for row in rows:
            self._run.log(row["metrics"])

    def file(self, path: Path, folder: str) -> None:
        name = f"{folder}-{self._id}-{path.stem}"
        self._run.log_artifact(str(path), name=name, type=folder)

    def end(self, summary: dict[str, Any]) -> None:
        self._run.summary.update(summary)
        self._run.finish(exit_code=0 if summary["status"] == "done" else 1)


def _mode(settings: Any) -> Literal["offline"] | None:
    """Returns "offline" if the user is not logged in at the server and $WANDB_MODE is not set;
    otherwise None, which selects the mode from the user's settings."""
    host = urlsplit(settings.base_url).netloc
    logged_in = settings.api_key or os.environ.get("WANDB_IDENTITY_TOKEN_FILE")
    with suppress(OSError, netrc.NetrcParseError):
        logins = netrc.netrc(os.environ.get("NETRC") or None)
        logged_in = logged_in or logins.authenticators(host)
    return None if logged_in or "WANDB_MODE" in os.environ else "offline"
