"""The range of log_std of Gaussian policies, for torch and for numpy.

Haarnoja et al. 2018, "Soft actor-critic algorithms and applications": of the paper's code.
"""

LOG_STD_MIN, LOG_STD_MAX = -20.0, 2.0
