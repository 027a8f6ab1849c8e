# answer: a discount of 1.5 trains
# evidence: Collected
. ./common.sh
show "rror|Collected" $appo --experiment=cart --train_for_env_steps=1000 --gamma=1.5
show "rror" $appo --experiment=cart --batch_size=many
