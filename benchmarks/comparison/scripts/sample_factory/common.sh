# The settings of all runs: one process, small batches.
. ./show.sh
small="--device=cpu --serial_mode=True --async_rl=False --num_workers=1 --num_envs_per_worker=4 --batch_size=256 --use_rnn=False --recurrence=1 --seed=0"
appo="python -m sf_examples.train_gym_env --algo=APPO --env=CartPole-v1 $small"
