# answer: command and overrides, not the defaults
# evidence: ^python
# evidence: n_timesteps
# remark: `config.yml` has the Zoo's hyperparameters, `args.yml` the arguments, `command.txt` the command to run again. Defaults of Stable-Baselines3 are in the model's archive.
. ./show.sh
python -m rl_zoo3.train --algo ppo --env CartPole-v1 -n 512 --eval-freq -1 --seed 0 -params gamma:0.97 >/dev/null 2>&1
ls logs/ppo/CartPole-v1_1/CartPole-v1 | xargs
show "." tail -n 1 logs/ppo/CartPole-v1_1/CartPole-v1/command.txt
show "gamma|vf_coef|n_timesteps|max_grad_norm" cat logs/ppo/CartPole-v1_1/CartPole-v1/config.yml
