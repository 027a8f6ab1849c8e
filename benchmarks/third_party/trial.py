"""The steps of the trial of one package."""

from __future__ import annotations

import datetime
import json
import platform
import shlex
import subprocess
from pathlib import Path
from typing import Any

from benchmarks.third_party.commands import Commands, Ended
from benchmarks.third_party.packages import ROOT, Package, Result
from benchmarks.third_party.sandbox import KEPT, Sandbox, installed_version
from benchmarks.third_party.verdict import (
    BEST,
    DIFFER,
    FAILS,
    REFUSED,
    TIME_LIMIT,
    TRAINS,
    UNSEEDED,
    Score,
    choose_agent,
    compare_scores,
    extra_settings,
    has_traceback,
    in_order,
    last_line,
    suitability,
)

SHOWN = 8  # names in a result
SHOWN_CHARACTERS = 3_000  # of an output
MOST_TRIED = 6  # environments of a package
TRY_S = 40.0  # for constructing and checking one of them
SEED = 7
EPISODES = 3
MAX_STEPS = 200  # of an episode, so that endless environments end
REGISTERING = "registering"  # module written for packages that register by a function
BRIEF = (
    *("trainer.max_opt_steps=300", "trainer.max_time_s=60", "trainer.eval_interval=0"),
    *("evaluator.num_episodes=2", f"env.max_episode_steps={MAX_STEPS}"),
)
OFF_POLICY = ("trainer.warmup_period=200", "replay_buffer.capacity=1000")
BRIEF_OF = {"dqn": OFF_POLICY, "sac": OFF_POLICY, "ppo": ("replay_buffer.n_steps=64",)}
CHILD = "benchmarks.third_party"


def try_package(package: Package, commands: Commands, folder: Path, *, limit_s: float) -> Result:
    """Installs a package, trains in one of its environments and compares scores."""
    with Sandbox(commands, folder, limit_s=limit_s) as sandbox:
        trial = Trial(package, sandbox)
        trial.run()
        trial.result["minutes"] = round(limit_s / 60, 1)
        trial.result["duration_s"] = round(limit_s - sandbox.left_s, 1)
    return trial.result


class Trial:
    """One package in its sandbox; fills `result` step by step. Used by one thread."""

    def __init__(self, package: Package, sandbox: Sandbox) -> None:
        self._package, self._sandbox = package, sandbox
        self._steps: dict[str, Any] = {}
        self._recipe: dict[str, Any] = {}
        self._facts: dict[str, Any] = {}
        self.result: dict[str, Any] = {
            "package": package.name,
            "group": package.group,
            "version": "",
            "date": datetime.date.today().isoformat(),
            "commit": _commit(),
            "python": platform.python_version(),
            "base": {name: installed_version(name) for name in KEPT},
            "replaced": {},
            "id": "",
            "command": "",
            "found": {},
            "scores": "",
            "steps": self._steps,
        }

    def run(self) -> None:
        """Runs the steps in turn until one fails."""
        if self._install() and self._find() and self._create():
            self._border_env()
            if self._train():
                self._compare(self._evaluate())

    def _note(self, name: str, ended: Ended, outcome: str | None = None, **more: Any) -> bool:
        """Records a step; returns whether it passed."""
        if outcome is None:
            outcome = "passes" if ended.status == 0 else "fails"
        if ended.status is None:
            outcome = TIME_LIMIT
        is_good = outcome in ("passes", TRAINS)
        self._steps[name] = {
            "outcome": outcome,
            "status": ended.status,
            "seconds": round(ended.duration_s, 1),
            "traceback": has_traceback(ended.output),
            "last_line": "" if is_good else last_line(ended.output),
            **({} if is_good else {"output": ended.output.strip()[-SHOWN_CHARACTERS:]}),
            **more,
        }
        return is_good

    def _install(self) -> bool:
        version, ended = self._sandbox.newest_version(self._package.name)
        if not version:
            return self._note("install", ended, "fails")
        self.result["version"] = version
        wanted = [f"{self._package.name}=={version}", *self._package.requirements]
        ended = self._sandbox.install(wanted)
        self.result["replaced"] = {
            name: version
            for name, version in sorted(self._sandbox.installed().items())
            if installed_version(name)
        }
        return self._note("install", ended)

    def _find(self) -> bool:
        """Lists the environments; returns whether there is one to try."""
        out = self._sandbox.folder / "found.json"
        ended = self._child("find_ids", self._package.name, str(out), limit_s=2 * TRY_S)
        found = _read(out) or {}
        ids = [entry["id"] for entry in found.get("ids", [])]
        self.result["found"] = found | {"ids": ids}
        for name in ("ids", "classes", "old_ids", "similar"):
            names = self.result["found"].get(name, [])
            self.result["found"] |= {name: names[:SHOWN], f"num_{name}": len(names)}
        function = found.get("function")
        if function:
            module = function.rpartition(".")[0]
            text = f"import {module}\n\n{function}()\n"
            (self._sandbox.work / f"{REGISTERING}.py").write_text(text)
            for entry in found["ids"]:
                entry["module"] = REGISTERING
        self._candidates = in_order(found.get("ids", []), found.get("classes", []))
        if self._package.env_id:
            self._candidates = [self._package.env_id]
        if not self._note("find", ended) and not found.get("errors"):
            last = self._steps["find"]["last_line"] or f"exit status {ended.status}"
            self.result["found"]["errors"] = {self._package.name: last}
        return bool(self._candidates)

    def _create(self) -> bool:
        """Chooses the first environment that passes check_env, or else the first that can be
        constructed."""
        began_left_s, chosen = self._sandbox.left_s, None
        for name in self._candidates[:MOST_TRIED]:
            imports, kwargs = list(self._package.imports), dict(self._package.kwargs)
            recipe = {"id": name, "imports": imports, "kwargs": kwargs}
            out = self._sandbox.folder / "tried.json"
            out.unlink(missing_ok=True)
            ended = self._child("try_env", json.dumps(recipe), str(out), limit_s=TRY_S)
            facts = _read(out)
            if facts is None:
                if "create" not in self._steps:
                    self._note("create", ended, "fails", id=name)
                continue
            if chosen is None or suitability(facts) > suitability(chosen[2]):
                chosen = ended, recipe, facts
            tried_s = began_left_s - self._sandbox.left_s
            if suitability(chosen[2]) == BEST or tried_s > TRY_S or self._sandbox.is_over:
                break
        if chosen is None:
            return False
        self._steps.pop("create", None)
        ended, self._recipe, self._facts = chosen
        self._note_check(ended)
        return not self._sandbox.is_over

    def _note_check(self, ended: Ended) -> None:
        """Records the verdict of check_env."""
        verdict = self._facts.get("check_env", "killed" if ended.status else "time limit")
        passes = verdict == "passes"
        self._note("check_env", ended, "passes" if passes else "fails")
        self._steps["check_env"]["last_line"] = "" if passes else verdict
        self.result |= {"id": self._recipe["id"], "spaces": self._facts}

    def _settings(self) -> list[str]:
        kwargs = [f"env.kwargs.{key}={json.dumps(v)}" for key, v in self._recipe["kwargs"].items()]
        imports = self._recipe["imports"]
        modules = [f"imports=[{','.join(imports)}]"] if imports else []
        return [*modules, *kwargs, *extra_settings(self._facts)]

    def _border_env(self) -> None:
        if not self._sandbox.has("border-env"):
            return
        ended = self._sandbox.run("border-env", self._recipe["id"], *self._settings(), "--json")
        self._note("border_env", ended, _trained(ended))

    def _train(self) -> bool:
        agent = choose_agent(self._facts)
        typed = [f"agent={agent}", f"env.id={self._recipe['id']}", *self._settings()]
        self.result["command"] = shlex.join(["border-train", *typed])
        if self._sandbox.is_over:
            return False
        typed += [*BRIEF, *BRIEF_OF[agent], "run_dir=run"]
        ended = self._sandbox.run("border-train", *typed)
        return self._note("train", ended, _trained(ended), typed=shlex.join(typed))

    def _evaluate(self) -> list[Score]:
        """Returns the scores of border-eval; [] if it fails."""
        typed = ["run", f"episodes={EPISODES}", f"seed={SEED}", "trust=true", "--json"]
        ended = self._sandbox.run("border-eval", *typed)
        if not self._note("eval", ended):
            return []
        try:
            document = json.loads(ended.stdout)
        except ValueError:
            self._note("eval", ended, "fails")
            return []
        scores: list[Score] = [
            list(pair) for pair in zip(document["returns"], document["lengths"], strict=True)
        ]
        self._steps["eval"]["scores"] = scores
        return scores

    def _compare(self, evaluated: list[Score]) -> None:
        """Compares with plain loops; other kinds of loops are tried until one is equal."""
        loops: dict[str, list[Score]] = {}
        check = self._steps["check_env"]["last_line"]
        for kind in ("reused", "again", "fresh", "beside") if evaluated else ():
            scores = self._loop("reused" if kind == "again" else kind)
            if scores is None:
                self.result["scores"] = ""
                break
            loops[kind] = scores
            self.result["scores"] = compare_scores(evaluated, loops, check)
            if self.result["scores"] not in (DIFFER, UNSEEDED):
                break
        if "loop" in self._steps:
            self._steps["loop"]["scores"] = loops

    def _loop(self, kind: str) -> list[Score] | None:
        out = self._sandbox.folder / f"{kind}.json"
        weights = [1.0] * self._facts["num_rewards"] if self._facts["num_rewards"] > 1 else []
        recipe = self._recipe | {
            "kind": kind,
            "seed": SEED,
            "episodes": EPISODES,
            "steps": MAX_STEPS,
            "weights": weights,
            "wrappers": ["FlattenObservation"] if self._facts["nested"] else [],
        }
        out.unlink(missing_ok=True)
        ended = self._child("plain_loop", "run", json.dumps(recipe), str(out))
        scores: list[Score] | None = _read(out)
        if kind == "reused" or scores is not None:
            self._note("loop", ended)
        return scores

    def _child(self, module: str, *arguments: str, limit_s: float | None = None) -> Ended:
        run = self._sandbox.run
        return run("python", "-m", f"{CHILD}.{module}", *arguments, limit_s=limit_s)


def _trained(ended: Ended) -> str:
    """Tells a refusal, which is a message without a traceback, from a failure."""
    if ended.status == 0:
        return TRAINS
    return REFUSED if ended.status == 2 and not has_traceback(ended.output) else FAILS


def _read(path: Path) -> Any:
    """Returns what a child has written; None if it has written nothing."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return None


def _commit() -> str:
    git = ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]
    return subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip()
