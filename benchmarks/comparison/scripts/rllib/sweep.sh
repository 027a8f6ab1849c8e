# answer: others finish; `Tuner.restore` completes
# remark: `resume_errored=True` continues the failed trial.
# evidence: seed 1 .*licence
# evidence: seed 1 done
. ./show.sh
export RAY_AIR_NEW_OUTPUT=0
FAILS=1 show "^seed|Error" python sweep.py
FAILS=0 show "^seed|Error" python sweep.py restore
