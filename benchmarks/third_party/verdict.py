"""Choices and verdicts of the trial, as pure functions: the agent, the outcome, the reason."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from benchmarks.third_party.packages import Result

Facts = Mapping[str, Any]
Score = Sequence[float]  # return and length of an episode

TRAINS, REFUSED, FAILS = "trains", "refused", "fails"
NO_INSTALL, NO_IMPORT, NO_ENV = "does not install", "cannot be imported", "no Gymnasium environment"
NOT_CREATED, TIME_LIMIT = "cannot be created", "time limit"
OUTCOMES = {  # with what the report counts
    NO_INSTALL: "could not be installed",
    NO_IMPORT: "could not be imported",
    NO_ENV: "has no Gymnasium environment",
    NOT_CREATED: "no environment could be constructed",
    TIME_LIMIT: "stopped at the time limit",
    TRAINS: "trained",
    REFUSED: "refused by a message",
    FAILS: "training failed",
}
EQUAL, DIFFER = "equal", "differ"
UNSEEDED = "the environment does not repeat with one seed"
NOT_DETERMINISTIC = "AssertionError: Deterministic"  # begins messages of check_env
OTHER_LOOPS = {
    "fresh": "a new environment for each episode",
    "beside": "episodes side by side",
}
NO_GYM = "No module named 'gym'"
TRACEBACK = "Traceback (most recent call last)"
ERRORS = [  # the patterns of messages: of a run, of another command, of pip, of Python
    re.compile(r"\[[\d:]+\] error: (.*)"),
    re.compile(r"border-\w+: (.*)"),
    re.compile(r"(?:ERROR|error): (.*)"),
    re.compile(r"((?:[\w.]+\.)?\w*(?:Error|Exception|Warning)\b.*)"),
]
MOST_CHARACTERS = 400  # of a message
SUPPORTED = ("Discrete", "Box", "MultiDiscrete", "MultiBinary")  # actions
BEST = 3  # suitability of an environment that passes check_env and has such actions
DEMOTED = re.compile(r"multi|vec|human|render|display|image|visual|pixel|NoFrame|-ram", re.I)
NEEDS = {  # what an environment needs -> pattern of the error if it is missing
    "a display": r"\bdisplay\b|video device|X11|\bxcb\b|glfw|GLX|\bEGL\b|libGL|pyglet|NoSuchDispl",
    "setuptools below 82": r"No module named 'pkg_resources'",
    "a licence": r"licen[cs]e",
    "a GPU": r"\bCUDA\b|\bGPU\b|nvidia",
    "a download": r"urlopen|urllib|ConnectionError|Max retries|name resolution|getaddrinfo|"
    r"[Dd]ownload|HTTPError|huggingface",
    "another program": r"SUMO_HOME|not found in (the )?PATH|No such file or directory: '[\w./-]*'$|"
    r"[Cc]onnection refused|docker",
}


def choose_agent(facts: Facts) -> str:
    """Returns the agent to train, by the spaces of the environment."""
    if facts["pictures_in_dict"]:
        return "ppo"
    if facts["action_kind"] == "Discrete":
        return "dqn"
    return "sac" if facts["action_kind"] == "Box" and facts["bounded"] else "ppo"


def extra_settings(facts: Facts) -> list[str]:
    """Returns the settings without which border_cli could not use the spaces or rewards."""
    settings = []
    if facts["nested"]:
        settings.append("env.wrappers=[FlattenObservation]")
    if facts["num_rewards"] > 1:
        settings.append(f"env.reward_weights={[1] * facts['num_rewards']}".replace(" ", ""))
    return settings


def suitability(facts: Facts) -> int:
    """Returns how well an environment is suited for the trial, from 0 to `BEST`."""
    return 2 * (facts.get("check_env") == "passes") + (facts["action_kind"] in SUPPORTED)


def in_order(ids: Sequence[Facts], classes: Sequence[str]) -> list[str]:
    """Returns the environments to try, as `env.id` names them, the likely ones first."""
    names = [
        f"{entry['module']}:{entry['id']}" if entry["module"] else entry["id"] for entry in ids
    ]
    names = [*dict.fromkeys(names), *classes]
    return sorted(names, key=lambda name: bool(DEMOTED.search(name.rpartition(":")[2])))


def last_line(output: str) -> str:
    """Returns the last error of an output, or its last line."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    for pattern in ERRORS:
        matches = [match for line in lines if (match := pattern.match(line))]
        if matches:
            return matches[-1][1][:MOST_CHARACTERS]
    return lines[-1][:MOST_CHARACTERS] if lines else ""


def has_traceback(output: str) -> bool:
    """Returns whether Python printed a traceback, other than of an exception that it ignored."""
    lines = output.splitlines()
    return any(
        line.startswith(TRACEBACK) and not before.startswith("Exception ignored in")
        for before, line in pairwise(["", *lines])
    )


def need_of(message: str) -> str:
    """Returns what an environment needs that this machine does not have, or ''."""
    return next((need for need, pattern in NEEDS.items() if re.search(pattern, message)), "")


def outcome_of(result: Result) -> str:
    """Returns one of `OUTCOMES`."""
    steps = result["steps"]
    failed = next((name for name, step in steps.items() if step["outcome"] == TIME_LIMIT), None)
    if "train" in steps and steps["train"]["outcome"] != TIME_LIMIT:
        return str(steps["train"]["outcome"])
    if failed:
        return TIME_LIMIT
    if steps["install"]["outcome"] != "passes":
        return NO_INSTALL
    if "create" in steps:
        return NOT_CREATED
    return NO_IMPORT if _import_errors(result) and not result["found"].get("old_ids") else NO_ENV


def _import_errors(result: Result) -> list[str]:
    """Returns the errors of top-level modules; those of submodules may be of optional parts."""
    errors = result["found"].get("errors", {})
    return [error for name, error in errors.items() if "." not in name]


def reason_of(result: Result) -> str:
    """Returns why the package did not train, or what is worth knowing if it did; '' if nothing."""
    outcome, steps, found = outcome_of(result), result["steps"], result["found"]
    if outcome == TRAINS:
        return "; ".join(_notes(result))
    if outcome == TIME_LIMIT:
        late = next(name for name, step in steps.items() if step["outcome"] == TIME_LIMIT)
        return f"time limit during: {STEPS[late]}"
    if outcome == NO_ENV:
        return _why_none(found)
    if outcome == NO_INSTALL and not result["version"]:
        return f"the package index has none for Python {result['python']}"
    message = _message(result, outcome)
    if message.startswith("ResolutionImpossible"):
        return "its requirements and border_cli's have no version in common"
    if outcome in (REFUSED, FAILS) and not works_without_us(result):
        return f"fails without border_cli, too: {result['spaces']['random_steps']}"
    if "required positional argument" in message or "required keyword" in message:
        return f"needs arguments: {message}"
    need = need_of(message) if outcome in (NO_IMPORT, NOT_CREATED, FAILS, REFUSED) else ""
    return f"needs {need}: {message}" if need else message


def works_without_us(result: Result) -> bool:
    """Returns whether random actions in plain Gymnasium raised nothing."""
    return bool(result.get("spaces", {}).get("random_steps", "passes") == "passes")


def _why_none(found: Facts) -> str:
    """Returns why a package has no environment that can be tried."""
    errors = [*found.get("errors", {}).values()]
    if found.get("old_ids") or any(NO_GYM in error for error in errors):
        return "uses Gym, the predecessor of Gymnasium"
    if found.get("multi_agent"):
        return "has only environments of PettingZoo, for several agents"
    if found.get("similar"):
        names = ", ".join(dict.fromkeys(found["similar"]))
        return f"not derived from gymnasium.Env, or with required arguments: {names}"
    return f"none found; a submodule raises {errors[0]}" if errors else "none found"


def _message(result: Result, outcome: str) -> str:
    if outcome == NO_IMPORT:
        return _import_errors(result)[0]
    name = {NO_INSTALL: "install", NOT_CREATED: "create"}.get(outcome, "train")
    return str(result["steps"][name]["last_line"])


def _notes(result: Result) -> list[str]:
    notes = [
        f"installs {name} {version}"
        for name, version in result.get("replaced", {}).items()
        if name in ("numpy", "gymnasium")
    ]
    if result["found"].get("function"):
        notes.append(f"registering.py is a module of your own: {result['found']['function']}()")
    if result["scores"] not in ("", EQUAL):
        notes.append(str(result["scores"]))
    late = [STEPS[name] for name, step in result["steps"].items() if step["outcome"] == TIME_LIMIT]
    if late:
        notes.append(f"scores not compared: time limit during: {late[0]}")
    return notes


STEPS = {
    "install": "installation",
    "find": "import",
    "create": "construction",
    "check_env": "check_env",
    "border_env": "border-env",
    "train": "border-train",
    "eval": "border-eval",
    "loop": "plain loop",
}


def compare_scores(
    evaluated: Sequence[Score], loops: Mapping[str, Sequence[Score]], check: str = ""
) -> str:
    """Returns whether a plain loop has the scores of border-eval, and if not, which kind of loop
    has, if any. `check` is the verdict of check_env."""
    if not loops:
        return ""
    if loops["reused"] == evaluated:
        return EQUAL
    if "again" in loops and loops["again"] != loops["reused"]:
        return UNSEEDED
    for kind, description in OTHER_LOOPS.items():
        if loops.get(kind) == evaluated:
            return f"equal with {description}"
    return UNSEEDED if check.startswith(NOT_DETERMINISTIC) else DIFFER


def suspicions(result: Result) -> list[str]:
    """Returns what may be a defect of border_cli, for somebody to look at."""
    steps = result["steps"]
    train, check = steps.get("train", {}), steps.get("check_env", {})
    found = [
        f"{STEPS[name]} prints a traceback"
        for name in ("border_env", "train", "eval", "loop")
        if steps.get(name, {}).get("traceback") and steps[name]["outcome"] != TIME_LIMIT
    ]
    if check.get("outcome") == "passes" and train.get("outcome") == REFUSED:
        found.append("refused, though it passes check_env")
    if train.get("outcome") == FAILS and works_without_us(result):
        found.append("border-train fails")
    env = steps.get("border_env", {}).get("outcome")
    if env and train and (env == TRAINS) != (train["outcome"] == TRAINS):
        found.append("border-env and border-train disagree")
    if train.get("outcome") == TRAINS and steps.get("eval", {}).get("outcome") not in (
        "passes",
        None,
    ):
        found.append("border-eval fails")
    if result.get("scores") == DIFFER:
        found.append("returns differ from those of a plain loop")
    return found
