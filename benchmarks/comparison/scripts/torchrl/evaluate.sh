# answer: a script; the network is built again
# evidence: returns \[
. ./show.sh
python train.py frames=3000 >/dev/null 2>&1
mkdir elsewhere
cp show.sh elsewhere
cd elsewhere
show "^returns|Error" python ../evaluate.py ../checkpoint 123
