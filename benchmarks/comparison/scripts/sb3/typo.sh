# answer: refused, with a traceback
# evidence: unexpected keyword argument 'gama'
# evidence: unrecognized arguments
. ./show.sh
show "rror" python -m rl_zoo3.train --algo dqn --env CartPole-v1 -n 500 -params gama:0.9
show "rror" python -m rl_zoo3.train --algo dqn --env CartPole-v1 --n-timestep 500 --sede 1
show "^ValueError" python -m rl_zoo3.train --algo dqn --env CartPole-v2
