# answer: a setting, with the module's name
# evidence: ^frames
# remark: Gymnasium imports the module that is named before the colon.
. ./show.sh
show "^frames|Error" python train.py frames=2000 env.base_env.env_name=my_envs:Corridor-v0 network.in_features=1
