# answer: refused by argparse
# remark: An unknown environment raises an error in a process, for which the command waits; the script ends it after 60 s (exit status 124).
# evidence: unrecognized arguments: --gama
. ./common.sh
show "rror" $appo --experiment=cart --gama=0.9
show "rror" timeout 60 python -m sf_examples.train_gym_env --algo=APPO --env=CartPole-v2 --experiment=v2
