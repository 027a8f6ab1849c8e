# answer: same command completes it
# evidence: 3 of 3 trials
. ./show.sh
small="seeds=1 jobs=1 fresh_seeds=0 sampler=random trainer.max_env_steps=2000 rungs=1"
search="border-tune agent=ppo env=cartpole study=my_study trials=3 $small"
kill_when my_study/trial-0001/seed-0/run.json $search
show "^trials|resum|is complete|rror" $search
