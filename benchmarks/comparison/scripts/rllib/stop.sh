# answer: traceback; last checkpoint remains
# evidence: KeyboardInterrupt
# remark: Scripts of its guide save when they say so; `restore_from_path` continues from there, as in `resume.py`.
. ./show.sh
interrupt_when checkpoint/rllib_checkpoint.json python train.py 20000
grep -E "^steps|^KeyboardInterrupt" stopped.txt | tail -n 2
ls checkpoint | xargs
