# answer: one command, by an example module
# evidence: Collected
. ./common.sh
show "Avg episode|Collected" $appo --experiment=cart --train_for_env_steps=8000
ls train_dir/cart
