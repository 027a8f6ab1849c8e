# answer: one command, 95 % intervals
# evidence: curves.svg
. ./show.sh
border-train -m agent=ppo env=cartpole seed=0,1,2 run_dir=my_sweep trainer.max_env_steps=4000 hydra.launcher.jobs=1 >/dev/null 2>&1
show "^wrote" border-plot my_sweep --out curves.svg --out scores.md
grep -A 3 lowest scores.md
