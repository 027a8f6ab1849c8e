# answer: by a script: buffer kept, not the same run
# evidence: fact buffer: 3999 of 4000
# evidence: fact same result: no
# evidence: exploration_rate .* 0\.[89]
# remark: `resume.py` does what the guide says: `CheckpointCallback(save_replay_buffer=True)`, `load_replay_buffer`, `reset_num_timesteps=False`; the callback saves before the row of its step is stored. From the shell, the Zoo's `--save-freq` saves no replay buffer, and `-i` starts epsilon and the steps again; [stable-baselines3#1916](https://github.com/DLR-RM/stable-baselines3/issues/1916) tells of such a resume.
. ./show.sh
mkdir whole cut
show "^fact" python resume.py whole
kill_when cut/dqn_replay_buffer_4000_steps.pkl python resume.py cut
LINES_SHOWN=6 show "^fact" python resume.py cut resume
cmp -s whole/weights.txt cut/weights.txt && echo "fact same result: yes" || echo "fact same result: no"
python curve.py "SB3 by resume.py" undivided whole/first.monitor.csv
python curve.py "SB3 by resume.py" resumed cut/first.monitor.csv 0 4000
python curve.py "SB3 by resume.py" resumed cut/second.monitor.csv 4000

small="--algo dqn --env CartPole-v1 --seed 0 --eval-freq -1 -params policy_kwargs:dict(net_arch=[64,64])"
zoo="python -m rl_zoo3.train $small"
$zoo -n 8000 -f whole >/dev/null 2>&1
kill_when cut/dqn/CartPole-v1_1/rl_model_4000_steps.zip $zoo -n 8000 --save-freq 1000 --save-replay-buffer -f cut
END=head LINES_SHOWN=4 show "^Loading|exploration_rate|total_timesteps" $zoo -n 4000 -i cut/dqn/CartPole-v1_1/rl_model_4000_steps.zip -f cut
python curve.py "RL Zoo by its command" undivided whole/dqn/CartPole-v1_1/0.monitor.csv
python curve.py "RL Zoo by its command" resumed cut/dqn/CartPole-v1_1/0.monitor.csv 0 4000
python curve.py "RL Zoo by its command" resumed cut/dqn/CartPole-v1_2/0.monitor.csv 4000
