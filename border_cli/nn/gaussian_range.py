"""The ranges of log_std of Gaussian policies, for torch and for numpy."""

# Of a Gaussian that tanh squashes, its deviations those of the state. Haarnoja et al. 2018, "Soft
# actor-critic algorithms and applications": of the paper's code.
SQUASHED_LOG_STD_MIN, SQUASHED_LOG_STD_MAX = -20.0, 2.0

# Of a Gaussian that is cut at the bounds, its deviations the same in every state: of IQL's authors.
# Those of AWAC have -6 and 0.
CUT_LOG_STD_MIN, CUT_LOG_STD_MAX = -5.0, 2.0
