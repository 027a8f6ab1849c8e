# answer: a discount of 1.5 trains
# evidence: total_timesteps
. ./show.sh
LINES_SHOWN=1 show "rror|total_timesteps" python -m rl_zoo3.train --algo ppo --env CartPole-v1 -n 2000 --eval-freq -1 -params gamma:1.5
show "rror" python -m rl_zoo3.train --algo ppo --env CartPole-v1 -n 500 -params "batch_size:'many'"
show "rror" python -m rl_zoo3.train --algo ppo --env CartPole-v1 -n many
