# answer: a module by `--gym-packages`
# evidence: ep_rew_mean
# remark: Without hyperparameters for the environment, the Zoo needs a file of its own, here `my_ppo.yml`.
. ./show.sh
printf 'Corridor-v0:\n  n_timesteps: 4000\n  policy: MlpPolicy\n' >my_ppo.yml
show "rror" python -m rl_zoo3.train --algo ppo --env Corridor-v0 --gym-packages my_envs -n 4000
LINES_SHOWN=1 show "ep_rew_mean|rror" python -m rl_zoo3.train --algo ppo --env Corridor-v0 --gym-packages my_envs --conf-file my_ppo.yml --env-kwargs length:5
