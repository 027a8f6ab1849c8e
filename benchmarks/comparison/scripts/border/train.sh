# answer: one command
# evidence: best score
. ./show.sh
show "^(best score|next) " border-train agent=ppo env=cartpole seed=0 trainer.max_env_steps=8000
