# answer: a script; the checkpoint has the settings
# evidence: ^episodes
. ./show.sh
LINES_SHOWN=1 show "^steps|Error" python train.py 1500
mkdir elsewhere
cp show.sh elsewhere
cd elsewhere
show "^episodes|Error" python ../evaluate.py ../checkpoint 123
