"""Prints what the resumed run had, and writes the curves of both runs."""

import re
from pathlib import Path

import torch


def last(name):
    paths = sorted(Path("train_dir", name, "checkpoint_p0").glob("checkpoint_*.pth"))
    return torch.load(paths[-1], weights_only=False)


whole, cut = last("whole"), last("cut")
loaded = re.search(
    r"train_step=(\d+), self.env_steps=(\d+)", Path("second.txt").read_text(errors="replace")
)
saved = torch.load("killed.pth", weights_only=False)
adam = saved["optimizer"]["state"][0]["step"]
print("fact buffer: none, on-policy")
print(f"fact optimiser: Adam step {adam:.0f} of {saved['train_step']}")
print(f"fact schedule: learning rate {saved['curr_lr']:g} saved")
print(f"fact counters: step {loaded[2]} of {saved['env_steps']}")
same = all(torch.equal(whole["model"][name], cut["model"][name]) for name in whole["model"])
print(f"fact same result: {'yes' if same else 'no'}")
PROGRESS = re.compile(r"Total num frames: (\d+)|Avg episode reward: \[\(0, '([-\d.]+)'\)\]")
with Path("curve.csv").open("w") as out:
    for run, name in (("undivided", "whole"), ("resumed", "killed"), ("resumed", "second")):
        step = 0
        for frames, reward in PROGRESS.findall(Path(f"{name}.txt").read_text(errors="replace")):
            step = int(frames) if frames else step
            if reward and step and not (name == "killed" and step > saved["env_steps"]):
                print("Sample Factory", run, step, reward, sep=",", file=out)
