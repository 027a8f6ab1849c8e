# answer: a config and a script of ten lines
# evidence: ^frames
# evidence: Primary config
# remark: The package has training scripts (`sota-implementations`), but not their configs, which are in the repository. `config.yaml` and `train.py` are written as its page on configuration says.
. ./show.sh
package=$(python -c "import importlib.util as u, pathlib; print(pathlib.Path(u.find_spec('torchrl').origin).parents[1])")
show "rror|rimary" python $package/sota-implementations/dqn_trainer/train.py
show "^frames|rror" python train.py frames=3000
