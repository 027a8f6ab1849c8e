# answer: one command
# evidence: ep_rew_mean
. ./show.sh
LINES_SHOWN=3 show "ep_rew_mean|total_timesteps|Saving to" python -m rl_zoo3.train --algo ppo --env CartPole-v1 -n 8000 --seed 0
ls logs/ppo/CartPole-v1_1 | grep -v monitor | xargs
