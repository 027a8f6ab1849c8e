# answer: a script of the guide
# evidence: ^action
# remark: Not part of the command; the guide has a wrapper class to copy for `torch.onnx.export`.
. ./show.sh
python -m rl_zoo3.train --algo ppo --env CartPole-v1 -n 512 --eval-freq -1 --seed 0 >/dev/null 2>&1
show "rror" python export.py
show "^action|rror" python onnx_action.py
