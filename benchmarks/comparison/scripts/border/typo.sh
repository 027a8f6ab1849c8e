# answer: refused, with a suggestion
# evidence: [Dd]id you mean
. ./show.sh
show "." border-train agent=dqn env=cartpole agent.gama=0.9
show "." border-train agent=dqn env=cartpol
ls -d outputs 2>/dev/null || echo "no directory was written"
