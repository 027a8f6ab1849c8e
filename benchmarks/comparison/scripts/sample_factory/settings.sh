# answer: saved; same name runs on, not again
# evidence: gamma
# remark: `config.json` has all settings and the command line. The same `--experiment` loads it to resume; a new run with the same settings is the command line again.
. ./common.sh
$appo --experiment=cart --train_for_env_steps=500 --gamma=0.97 >/dev/null 2>&1
show "^  .(gamma|learning_rate|ppo_clip_ratio|seed).:" cat train_dir/cart/config.json
