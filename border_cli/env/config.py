"""Settings of environments. Never imports Gymnasium."""

from __future__ import annotations

import copy
import re
from dataclasses import dataclass, replace
from enum import StrEnum
from importlib.resources import files
from typing import Any, ClassVar, Self

from border_cli.registry import ENVS
from border_cli.settings.base import setting
from border_cli.settings.run import EnvConfig

ATARI = "atari/"  # prefix of the ids of ALE games
SUCCESS = "is_success"
NAME = re.compile(r"[A-Za-z_][\w.-]*", re.ASCII)
# Names of built-in metrics under `episode/` and `eval/`.
RESERVED = (
    *("return", "return_std", "return_min", "return_max"),
    *("length", "length_std", "length_min", "length_max"),
    *("normalized_score", "human_normalized"),
)


class Vectorization(StrEnum):
    """How an actor steps several environments."""

    auto = "auto"
    sync = "sync"
    envpool = "envpool"


@dataclass(kw_only=True)
class GymConfig(EnvConfig):
    """Any Gymnasium environment by its id; `module:Id-v0` imports the module first."""

    kwargs: dict[str, Any] = setting({}, "keyword arguments of the environment's constructor")
    wrappers: list[Any] = setting(
        [],
        "wrappers in gymnasium.wrappers or module:Class, innermost first: Name or "
        "{Name: {argument: value}}",
    )
    ignore: list[str] = setting(
        [],
        "keys of a Dict observation to leave out; parts that no network can read, such as text, "
        "are always left out",
    )
    reward_weights: list[float] | None = setting(
        None, "weights of the numbers in a vector reward; their weighted sum is the reward"
    )
    resize: list[int] | None = setting(
        None, "[height, width] to which images are resized, by averaging pixels", low=1
    )
    grayscale: bool = setting(False, "whether images become gray")
    frame_skip: int = setting(
        1, "times that each action is repeated; the rewards are summed", low=1, high=1_000
    )
    frame_stack: int = setting(
        1, "number of successive images in an observation", low=1, high=1_000, takes_memory=True
    )
    info_metrics: list[str] = setting(
        [],
        "numbers in info to record as episode/NAME and eval/NAME, from an episode's last step; "
        "is_success is always recorded if present",
    )
    action_mask: bool | None = setting(
        None,
        'whether the environment provides action masks, in info["action_mask"] or in the part '
        "action_mask of a Dict observation; null means that the probe before a run "
        "(env.probe) finds out; true requires them; false ignores masks in info and takes the "
        "part as an ordinary observation",
        may_become_null=True,
    )
    own_generators: bool | None = setting(
        None,
        "whether each environment has its own states of Python's random and of np.random, seeded "
        "with each episode and swapped in for each reset and step; null means that it has them if "
        "the environment draws from them in the probe (env.probe). Actor threads share both "
        "generators, so runs with several are not reproducible",
        may_become_null=True,
    )
    vectorization: Vectorization = setting(
        Vectorization.auto,
        "how an actor steps several environments: auto uses the environment's own vector "
        "implementation where possible; sync steps them one by one, with a separate seed for "
        "each episode; envpool steps them in the C++ of the package EnvPool, also a single one. "
        "With trainer=sync or actor_manager=serial, auto means sync and envpool is rejected, "
        "unless env.exact_resume=false",
    )
    exact_resume: bool = setting(
        True,
        "whether a resume of a run with trainer=sync or actor_manager=serial must continue the "
        "running episodes, for which such runs use sync; false allows every env.vectorization, "
        "and a resume may then begin new episodes",
    )
    num_threads: int | None = setting(
        None,
        "threads that step the environments of one actor, for games of ALE with env.num_envs "
        "above 1 and for env.vectorization=envpool; null means the actor's share of the cores",
        low=1,
        high=1_024,
    )

    calls_by_name = True

    # Constructors without a registered id, as "module:Class"
    entry_point: ClassVar[str | None] = None
    vector_entry_point: ClassVar[str | None] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.resize is not None and len(self.resize) != 2:
            self.refuse("resize", self.resize, "must be [height, width]")
        for name in self.info_metrics:
            if not NAME.fullmatch(name) or name in RESERVED:
                self.refuse(
                    "info_metrics",
                    self.info_metrics,
                    "must be names in info, of letters, digits, '.', '_' and '-', and none of "
                    f"{', '.join(RESERVED)}",
                )
        if self.num_threads is not None and not self._has_threads:
            self.refuse("num_threads", self.num_threads, "needs env.vectorization=envpool")
        if not self.exact_resume and self.vectorization == Vectorization.sync:
            self.refuse("exact_resume", False, "has no effect with env.vectorization=sync")

    @property
    def _has_threads(self) -> bool:
        return self.vectorization == Vectorization.envpool or self.entry_point is not None

    @property
    def recorded_info(self) -> tuple[str, ...]:
        """Names of the values in `info` that are recorded if present."""
        return tuple(dict.fromkeys([SUCCESS, *self.info_metrics]))

    @property
    def changes_images(self) -> bool:
        """Whether images are reduced or stacked."""
        return bool(self.resize) or self.grayscale or self.frame_stack > 1

    @property
    def human_scores(self) -> tuple[float, float] | None:
        """Published returns of random actions and of a human player."""
        return None

    def one_by_one(self) -> Self:
        if not self.exact_resume:
            return self
        if self.vectorization == Vectorization.envpool:
            self.refuse(
                "vectorization",
                "envpool",
                "needs env.exact_resume=false with trainer=sync or actor_manager=serial, because a "
                "resume cannot continue the episodes of EnvPool and begins new ones",
            )
        return replace(self, vectorization=Vectorization.sync)

    def for_evaluation(self) -> Self:
        return self.in_python()

    def in_python(self) -> Self:
        """Returns these settings with Gymnasium's own environments, stepped one by one."""
        sync = Vectorization.sync
        return replace(self, vectorization=sync, exact_resume=True, num_threads=None)

    def with_threads(self, num_threads: int) -> Self:
        if self.num_threads is not None or not self._has_threads:
            return self
        return replace(self, num_threads=num_threads)

    def arguments(self) -> dict[str, Any]:
        """Returns the keyword arguments of the constructor."""
        return copy.deepcopy(self.kwargs)

    def vector_arguments(self) -> dict[str, Any]:
        """Returns the keyword arguments of the vector implementation."""
        return self.arguments()


@dataclass(kw_only=True)
class AtariConfig(GymConfig):
    """A game of the Arcade Learning Environment, with the preprocessing of the DQN papers."""

    entry_point = "border_cli.env.atari:AtariGame"
    vector_entry_point = "border_cli.env.atari:AtariGames"
    named_by = "game"

    game: str | None = setting(None, "name of the game in ALE, such as qbert or ms_pacman")
    max_episode_steps: int | None = setting(
        27_000, "limit of a whole game in env steps of four frames each", low=1
    )
    episodic_life: bool = setting(
        True, "training only: an episode ends with each life, and the next one continues the game"
    )
    clip_rewards: bool = setting(True, "training only: rewards are clipped to -1, 0 and 1")
    repeat_action_probability: float = setting(
        0.0,
        "sticky actions: probability in each frame that the last action is repeated; 0.25 in "
        "Machado et al. 2018 and ALE's v5",
        low=0,
        high=1,
    )
    full_action_space: bool = setting(
        False, "all 18 actions, instead of those that have an effect in the game"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_episode_steps is None:
            self.refuse("max_episode_steps", None, "must be a number: some games have no end")
        if self.id is not None and not self.id.startswith(ATARI):
            self.refuse("id", self.id, "must be null: env.game names the game")
        if self.game is not None:
            self.id = f"{ATARI}{self.game}"

    @property
    def human_scores(self) -> tuple[float, float] | None:
        table = files("border_cli.env").joinpath("atari_scores.csv").read_text(encoding="utf-8")
        for line in table.splitlines():
            game, _, scores = line.partition(",")
            if game == self.game:
                random, human = map(float, scores.split(","))
                return random, human
        return None

    def for_evaluation(self) -> Self:
        return replace(super().for_evaluation(), episodic_life=False, clip_rewards=False)

    def arguments(self) -> dict[str, Any]:
        return self._shared_arguments() | {"max_game_steps": self.max_episode_steps}

    def vector_arguments(self) -> dict[str, Any]:  # `construct_vector` passes the time limit
        return self._shared_arguments() | {"num_threads": self.num_threads or 1}

    def _shared_arguments(self) -> dict[str, Any]:
        return super().arguments() | {
            "game": self.game,
            "episodic_life": self.episodic_life,
            "clip_rewards": self.clip_rewards,
            "repeat_action_probability": self.repeat_action_probability,
            "full_action_space": self.full_action_space,
        }


ENVS.register("atari", AtariConfig, "border_cli.env.gym:GymEnvFactory")
ENVS.register("gym", GymConfig, "border_cli.env.gym:GymEnvFactory")
