# answer: Hydra's `-m` runs all again
# evidence: licence
# remark: By Hydra's multirun, which its page on configuration is built on. The second command repeats the finished jobs.
. ./show.sh
export FAILS=1
run="python failing.py -m trainer.seed=0,1,2 frames=1200"
show "^done|^RuntimeError|\[HYDRA\]" $run
export FAILS=0
show "^done|^RuntimeError|\[HYDRA\]" $run
