# answer: a line in the script
# evidence: ^return
. ./show.sh
LINES_SHOWN=2 show "^return|Error" python own_env.py
