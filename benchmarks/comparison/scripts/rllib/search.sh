# answer: `Tuner.restore` continues it
# evidence: trial 2 iterations 3
# remark: `param_space` has to be given again, as the documentation of `Tuner.restore` says.
. ./show.sh
kill_when 'search/lr/DQN_*_00001_*/result.json' python search.py
LINES_SHOWN=3 show "^trial|Error" python search.py restore
