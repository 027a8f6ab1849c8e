# answer: all kept, same run to the bit
# evidence: fact buffer: (\d+) of \1 rows
# evidence: fact same result: yes
# remark: With `trainer=sync`. The default, `trainer=async`, keeps the same things, but its order of samples depends on the machine.
. ./show.sh
small="trainer.max_env_steps=10000 trainer.save_interval=2000 trainer.eval_interval=2000"
run="border-train agent=dqn env=cartpole trainer=sync seed=0 $small"
show "^best score" $run run_dir=whole
kill_when cut/checkpoints/0000002000 $run run_dir=cut
show "^resumed|^best score" border-train resume=cut
LINES_SHOWN=6 show "^fact|rror" python facts.py whole cut
