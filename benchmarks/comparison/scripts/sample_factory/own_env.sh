# answer: a script of about ten lines
# evidence: Collected
. ./common.sh
show "Avg episode|Collected|Error" python my_train.py --algo=APPO --env=corridor --experiment=mine --train_for_env_steps=2000 $small
