# answer: not part of it
# evidence: ^0 of [1-9]
# remark: Its loggers write CSV, TensorBoard, Weights and Biases and others; plots are made there.
. ./show.sh
search_in torchrl "fill_between|confidence_interval"
search_in torchrl "class \w+Logger\("
