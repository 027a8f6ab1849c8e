# answer: a loop in the shell
# evidence: v1_3
# remark: Sweeps over seeds are not part of it; its scripts for many runs are loops and SLURM files. Which job failed, and running it again, are up to the user.
. ./show.sh
for seed in 0 1 2; do
    more=""
    [ $seed = 1 ] && more="-params gamma:'one'"
    echo "seed $seed"
    LINES_SHOWN=1 show "rror|Saving to" python -m rl_zoo3.train --algo ppo --env CartPole-v1 -n 2000 --eval-freq -1 --seed $seed $more
done
ls -d logs/ppo/* | xargs
