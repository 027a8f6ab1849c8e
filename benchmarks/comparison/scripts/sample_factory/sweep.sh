# answer: others finish; all start again
# evidence: WARNING: RETURN CODE IS 1
# evidence: Loaded experiment state
# remark: The second command starts all jobs; finished ones load their last checkpoint and end after one more batch.
. ./common.sh
launch="timeout 200 python -m sample_factory.launcher.run --run=seeds --backend=processes --max_parallel=1 --pause_between=1 --experiments_per_gpu=-1 --num_gpus=0"
FAILS=1 show "RETURN CODE|Collected|Done!|licence" $launch
FAILS=0 LINES_SHOWN=6 show "RETURN CODE|Loaded|Collected|Done!" $launch
