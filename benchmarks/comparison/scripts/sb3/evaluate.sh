# evidence: Mean
# answer: one command, with the folder
# remark: `enjoy` imports `requests`, which had to be installed as well.

. ./show.sh
python -m rl_zoo3.train --algo ppo --env CartPole-v1 -n 4000 --eval-freq -1 --seed 0 >/dev/null 2>&1
mkdir elsewhere
cd elsewhere
LINES_SHOWN=3 show "Mean|rror" python -m rl_zoo3.enjoy --algo ppo --env CartPole-v1 -f ../logs --seed 123 -n 2000 --no-render
