# remark: Nothing is saved at Ctrl-C; the last scheduled checkpoint remains. It can be loaded only if `gamma` is in the settings of the loss, by default it is null.
# answer: stops; last scheduled checkpoint resumes
# evidence: KeyboardInterrupt
# evidence: Unexpected key
# evidence: fact counters
. ./show.sh
interrupt_when checkpoint/manifest.json python train.py frames=3000
tail -n 1 stopped.txt | cut -c -100
show "^frames|fact counters|rror" python train.py frames=3000 resume=$PWD/checkpoint
rm -r checkpoint
python train.py loss.gamma=null frames=1500 >/dev/null 2>&1
show "Unexpected|^frames" python train.py loss.gamma=null frames=3000 resume=$PWD/checkpoint
