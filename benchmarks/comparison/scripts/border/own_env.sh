# answer: a module in the folder, by its id
# evidence: best score
. ./show.sh
show "^(best score|next) |rror" border-train agent=ppo env.id=my_envs:Corridor-v0 env.kwargs.length=5 trainer.max_env_steps=4000
