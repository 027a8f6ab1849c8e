# answer: not part of it
# evidence: ^0 of [1-9]
# remark: Its documentation uses TensorBoard and Weights and Biases.
. ./show.sh
search_in sample_factory "fill_between|confidence_interval"
search_in sample_factory "SummaryWriter\("
