# answer: a discount of 1.5 trains
# evidence: ^steps
. ./show.sh
LINES_SHOWN=2 show "^steps|Error" python train.py 600 gamma=1.5
LINES_SHOWN=2 show "^steps|Error" python train.py 600 "train_batch_size_per_learner='many'"
