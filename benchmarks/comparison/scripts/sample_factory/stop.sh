# answer: checkpoint; same command resumes
# evidence: Loaded experiment state
. ./common.sh
run="$appo --experiment=cart --train_for_env_steps=6000 --save_every_sec=1"
interrupt_when 'train_dir/cart/checkpoint_p0/checkpoint_*_[2-9]???.pth' $run
grep -aE "nterrupt|Saving|Collected" stopped.txt | sed 's/\x1b\[[0-9;]*m//g' | tail -n 3 | cut -c -100
show "Loaded experiment|Collected" $run
