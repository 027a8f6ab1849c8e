# answer: in the checkpoint, by a script
# evidence: ^settings
# evidence: ^iteration
. ./show.sh
python train.py 600 gamma=0.97 >/dev/null 2>&1
show "^settings|^iteration|Error" python settings.py
