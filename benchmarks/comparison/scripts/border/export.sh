# answer: one command, checked; ONNX and numpy
# evidence: ^action
. ./show.sh
border-train agent=ppo env=cartpole seed=0 trainer.max_env_steps=4000 run_dir=my_run >/dev/null 2>&1
LINES_SHOWN=6 show "." border-export my_run exported
ls exported | xargs
show "^action|rror" python onnx_action.py exported/policy.onnx
