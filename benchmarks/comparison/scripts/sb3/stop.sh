# answer: model saved; `-i` goes on
# evidence: CartPole-v1\.zip
# evidence: Loading replay buffer
# remark: Ctrl-C saves the model, and with `--save-replay-buffer` the buffer. `-i` loads both; the steps and epsilon begin again.
. ./show.sh
small="--algo dqn --env CartPole-v1 --seed 0 --eval-freq -1 -params policy_kwargs:dict(net_arch=[64,64])"
dqn="python -m rl_zoo3.train $small --save-freq 1000"
interrupt_when logs/dqn/CartPole-v1_1/rl_model_2000_steps.zip $dqn -n 20000 --save-replay-buffer
tail -n 2 stopped.txt
ls logs/dqn/CartPole-v1_1 | grep -v rl_model
END=head LINES_SHOWN=5 show "^Loading|exploration_rate|total_timesteps" $dqn -n 2000 -i logs/dqn/CartPole-v1_1/CartPole-v1.zip
