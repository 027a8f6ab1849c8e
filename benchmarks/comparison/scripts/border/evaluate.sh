# answer: one command, with the run's folder
# evidence: episodes 10
. ./show.sh
border-train agent=ppo env=cartpole seed=0 trainer.max_env_steps=8000 run_dir=my_run >/dev/null 2>&1
mkdir elsewhere
cd elsewhere
cp ../show.sh .
LINES_SHOWN=3 show "." border-eval ../my_run seed=123 episodes=10
