# answer: a window, with standard errors
# evidence: Saving to results.pkl
# evidence: std_error
# remark: `all_plots` reads the evaluations of all runs of a folder, shows them in a window, and writes the figures to a pickle. Needs the extra `plots`.
. ./show.sh
for seed in 0 1 2; do python -m rl_zoo3.train --algo ppo --env CartPole-v1 -n 2000 --eval-freq 500 --seed $seed >/dev/null 2>&1; done
export MPLBACKEND=agg
LINES_SHOWN=4 show "CartPole|Saving|rror" python -m rl_zoo3.plots.all_plots -a ppo -e CartPole-v1 -f logs -l ppo -o results --no-display
ls results*
plots=$(python -c "import rl_zoo3; print(rl_zoo3.__path__[0])")/plots
show "std_error = " cat "$plots/all_plots.py"
