"""Training in an environment of the user's own, as in the guide of Sample Factory."""

import sys

from my_envs import Corridor
from sample_factory.cfg.arguments import parse_full_cfg, parse_sf_args
from sample_factory.envs.env_utils import register_env
from sample_factory.train import run_rl


def make_env(*_, **__):
    return Corridor(length=5)


if __name__ == "__main__":
    register_env("corridor", make_env)
    parser, _ = parse_sf_args()
    sys.exit(run_rl(parse_full_cfg(parser)))
