# answer: not part of it
# evidence: ^0 of [1-9]
# remark: Its documentation has grids of the launcher and population-based training (`--with_pbt`), which changes hyperparameters during one run.
. ./show.sh
search_in sample_factory "optuna|hyperopt|bayes"
search_in sample_factory "with_pbt"
