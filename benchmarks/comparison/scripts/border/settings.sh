# answer: saved, and run again by `--from`
# evidence: gamma
. ./show.sh
border-train agent=ppo env=cartpole seed=0 trainer.max_env_steps=2000 run_dir=my_run agent.gamma=0.97 >/dev/null 2>&1
show "^  (gamma|batch_size|num_envs|max_env_steps):" cat my_run/.hydra/resolved.yaml
show "^best score|rror" border-train --from my_run seed=1 run_dir=again
LINES_SHOWN=6 show "." border-runs diff my_run again
