# answer: goes on, with the killed trial left running
# evidence: RUNNING
# evidence: COMPLETE
# remark: With `--storage` and `--study-name`, as its guide says. The trial that was killed stays `RUNNING` in Optuna's storage.
. ./show.sh
small="--n-evaluations 1 --eval-episodes 2 --no-optim-plots --sampler random --pruner none"
search="python -m rl_zoo3.train --algo ppo --env CartPole-v1 -n 512 -optimize $small --max-total-trials 3 --storage study.log --study-name search --seed 0 -params n_envs:1"
$search >killed.txt 2>&1 &
pid=$!
title "$search  # kill -9 after a trial"
until grep -q "Trial 0 finished" killed.txt || ! kill -0 $pid 2>/dev/null; do sleep 0.1; done
sleep 2
kill -9 $pid
wait $pid 2>/dev/null
LINES_SHOWN=2 show "rror|Trial [0-9]* finished" $search
python -c "
import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
study = optuna.load_study(study_name='search', storage=JournalStorage(JournalFileBackend('study.log')))
print(*(f'{trial.number}: {trial.state.name}' for trial in study.trials), sep=', ')" 2>/dev/null
