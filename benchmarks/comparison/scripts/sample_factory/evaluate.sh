# answer: one command, with the folder
# evidence: Avg episode reward
. ./common.sh
$appo --experiment=cart --train_for_env_steps=4000 >/dev/null 2>&1
mkdir elsewhere
cp show.sh elsewhere
cd elsewhere
LINES_SHOWN=2 show "Avg episode reward|rror" python -m sf_examples.enjoy_gym_env --algo=APPO --env=CartPole-v1 --experiment=cart --train_dir=../train_dir --seed=123 --no_render --max_num_episodes=5 --device=cpu
