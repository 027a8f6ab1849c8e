"""A run description of Sample Factory's launcher: three seeds."""

from sample_factory.launcher.run_description import Experiment, ParamGrid, RunDescription

COMMAND = (
    "python failing.py --algo=APPO --env=CartPole-v1 --device=cpu --serial_mode=True"
    " --async_rl=False --num_workers=1 --num_envs_per_worker=4 --batch_size=256 --use_rnn=False"
    " --recurrence=1 --train_for_env_steps=1000"
)
grid = ParamGrid([("seed", [0, 1, 2])])
RUN_DESCRIPTION = RunDescription(
    "sweep", experiments=[Experiment("seeds", COMMAND, grid.generate_params(randomize=False))]
)
