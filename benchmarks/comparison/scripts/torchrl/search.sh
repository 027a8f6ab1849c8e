# answer: not part of it
# evidence: ^0 of [1-9]
# remark: Its documentation points to Hydra, for which there are sweepers of other projects.
. ./show.sh
search_in torchrl "optuna|hyperparameter search|ray\.tune"
search_in torchrl "import hydra|from hydra"
