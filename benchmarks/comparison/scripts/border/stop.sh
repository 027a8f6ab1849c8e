# answer: checkpoint, and the command to resume
# evidence: resume
# evidence: done
. ./show.sh
interrupt_when my_run/checkpoints/latest border-train agent=dqn env=cartpole seed=0 run_dir=my_run trainer.max_env_steps=8000 trainer.save_interval=1000
tail -n 3 stopped.txt
show "^resumed|reached|^best score" border-train resume=my_run
grep -o '"status": "[a-z]*"' my_run/run.json
