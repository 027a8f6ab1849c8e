# answer: a discount of 1.5 trains
# evidence: ^frames
. ./show.sh
show "^frames|rror" python train.py frames=1500 loss.gamma=1.5
show "rror" python train.py frames=1500 trainer.optim_steps_per_batch=many
