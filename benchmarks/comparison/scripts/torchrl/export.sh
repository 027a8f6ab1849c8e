# answer: a script of its tutorial
# evidence: ^action
. ./show.sh
python train.py frames=1500 >/dev/null 2>&1
show "rror" python export.py
show "^action|rror" python onnx_action.py
