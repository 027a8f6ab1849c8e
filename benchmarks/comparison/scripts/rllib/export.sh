# answer: a script
# evidence: ^action
. ./show.sh
LINES_SHOWN=1 show "^steps|Error" python train.py 600
show "Error" python export.py
show "^action|Error" python onnx_action.py
