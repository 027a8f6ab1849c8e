# answer: buffer kept; not the same run
# evidence: fact buffer: (\d+) rows at the end, undivided \1
# evidence: fact same result: no
# remark: With `torchrl.checkpoint.Checkpoint` as the trainer's `checkpoint`, and `load_from_file`, as its page on checkpoints says; `config.yaml` also registers `GlobalRNGState`.
. ./show.sh
train="python train.py trainer.save_trainer_interval=1900"
show "^frames" $train name=whole trainer.save_trainer_file=checkpoint_whole
kill_when checkpoint/manifest.json $train name=cut
LINES_SHOWN=5 show "^frames|^fact|rror" $train name=cut resume=$PWD/checkpoint
echo "fact buffer: $(cat cut/rows.txt) rows at the end, undivided $(cat whole/rows.txt)"
cmp -s whole/weights.txt cut/weights.txt && echo "fact same result: yes" || echo "fact same result: no"
sed 's/^/TorchRL,undivided,/' whole/episodes.csv >curve.csv
sed 's/^/TorchRL,resumed,/' cut/episodes.csv >>curve.csv
