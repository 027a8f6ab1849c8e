# answer: refused, with Hydra's message
# evidence: gama
. ./show.sh
show "rror|gama|Key" python train.py loss.gama=0.9
show "rror|Key" python train.py trainer.total_frame=900
