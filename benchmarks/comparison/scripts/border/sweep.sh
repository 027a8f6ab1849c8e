# answer: others finish; same command completes
# evidence: job 1 .* failed
# evidence: 3 of 3 jobs done
# remark: `failing.py` raises an error in the job with seed 1. The same command, run again with `resume=auto`, runs only this job.
. ./show.sh
small="env.kwargs.number=\${seed} trainer.max_env_steps=2000 hydra.launcher.jobs=1"
run="border-train -m agent=ppo env.id=failing:Failing-v0 seed=0,1,2 run_dir=my_sweep resume=auto $small"
export FAILS=1
LINES_SHOWN=4 show "^\[|jobs done" $run
export FAILS=0
LINES_SHOWN=4 show "^\[|jobs done" $run
