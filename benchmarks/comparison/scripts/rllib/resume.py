"""DQN with checkpoints, as in the guide of RLlib: FOLDER [resume]."""

import hashlib
import json
import sys
from pathlib import Path

from settings_of import dqn

MIDDLE, STEPS = 1_500, 3_000
folder, resumed = Path(sys.argv[1]), "resume" in sys.argv
folder.mkdir(exist_ok=True)
algo = dqn().build_algo()


def epsilon():
    return algo.env_runner.module.epsilon_schedule.get_current_value()


def state():
    learner = algo.learner_group._learner
    (_, optimizer), *_ = learner.get_optimizers_for_module("default_policy")
    adam = max(int(each["step"]) for each in optimizer.state_dict()["state"].values())
    counted = algo.metrics.peek(("env_runners", "num_env_steps_sampled_lifetime"))
    rows = algo.local_replay_buffer.get_num_timesteps()
    return {"buffer": f"{rows} rows", "optimiser": f"Adam step {adam}", "counters": int(counted)}


checkpoint = folder / "checkpoint"
if resumed:
    algo.restore_from_path(str(checkpoint.resolve()))
    saved = json.loads((folder / "state.json").read_text())
    for name, value in state().items():
        print(f"fact {name}: {value}, was {saved[name]}")
sampled = 0
while sampled < STEPS:
    result = algo.train()["env_runners"]
    sampled = result["num_env_steps_sampled_lifetime"]
    with (folder / "curve.csv").open("a") as file:
        print(int(sampled), result.get("episode_return_mean", float("nan")), sep=",", file=file)
    if sampled >= MIDDLE and not checkpoint.exists():
        (folder / "state.json").write_text(json.dumps(state() | {"epsilon": float(epsilon())}))
        algo.save_to_path(str(checkpoint.resolve()))
        (folder / "saved").touch()
if resumed:
    print(f"fact schedule: epsilon {epsilon():.2f} at the end, was {saved['epsilon']:.2f}")
weights = algo.get_module().state_dict()
digest = hashlib.sha256(b"".join(value.numpy().tobytes() for value in weights.values()))
(folder / "weights.txt").write_text(digest.hexdigest())
algo.stop()
