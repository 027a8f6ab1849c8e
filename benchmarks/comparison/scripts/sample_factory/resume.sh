# answer: same command; weights and optimiser kept
# evidence: fact optimiser: Adam step [1-9]
# evidence: fact same result: no
# remark: An on-policy algorithm without a replay buffer. `--restart_behavior=resume` is the default.
. ./common.sh
run="$appo --train_for_env_steps=24000 --save_every_sec=1 --keep_checkpoints=100"
LINES_SHOWN=1 show "Collected" $run --experiment=whole
cp show.txt whole.txt
kill_when 'train_dir/cut/checkpoint_p0/checkpoint_*_12???.pth' $run --experiment=cut
cp $(ls train_dir/cut/checkpoint_p0/checkpoint_* | tail -n 1) killed.pth
show "Loaded experiment|Collected" $run --experiment=cut
cp show.txt second.txt
LINES_SHOWN=6 show "^fact|rror" python facts.py
