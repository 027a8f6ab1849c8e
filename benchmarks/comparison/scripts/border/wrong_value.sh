# answer: refused, with the allowed range
# evidence: gamma
. ./show.sh
show "." border-train agent=dqn env=cartpole agent.gamma=1.5
show "." border-train agent=dqn env=cartpole agent.batch_size=many
