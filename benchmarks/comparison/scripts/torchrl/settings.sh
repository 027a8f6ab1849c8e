# answer: saved by Hydra, and run again
# evidence: lr: 0.005
# evidence: ^frames
. ./show.sh
python train.py frames=1200 optimizer.lr=5e-3 >/dev/null 2>&1
saved=$(ls -d outputs/*/*/.hydra)
ls $saved | xargs
show "^  (lr|weight_decay|gamma|total_frames):" cat $saved/config.yaml
show "^frames|Error" python train.py --config-path $PWD/$saved frames=1300
