# answer: a script of its Python API
# evidence: ^steps
# evidence: No such file or directory
# remark: The package installs no command `rllib`; `train.py` and `settings_of.py` are written as its guide says.
. ./show.sh
show "." env rllib --help
LINES_SHOWN=2 show "^steps|Error" python train.py 1000
