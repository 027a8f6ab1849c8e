# answer: not part of it
# evidence: ^0 of [1-9]
# remark: Results are written as CSV, JSON and for TensorBoard, which draws them.
. ./show.sh
search_in ray.rllib "fill_between|confidence_interval"
search_in ray.tune "fill_between|confidence_interval"
