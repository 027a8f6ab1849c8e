# answer: refused, with a traceback
# evidence: unexpected keyword argument 'gama'
. ./show.sh
show "Error" python train.py 1000 gama=0.9
