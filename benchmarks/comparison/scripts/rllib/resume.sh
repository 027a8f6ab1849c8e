# answer: weights kept; replay buffer lost
# evidence: fact buffer: 0 rows
# evidence: fact same result: no
# remark: As in its guide to checkpoints: `save_to_path`, `restore_from_path`, with `store_buffer_in_checkpoints=True`. See also [ray#8151](https://github.com/ray-project/ray/issues/8151).
. ./show.sh
show "^fact|Error" python resume.py whole
kill_when cut/saved python resume.py cut
LINES_SHOWN=6 show "^fact|Error" python resume.py cut resume
cmp -s whole/weights.txt cut/weights.txt && echo "fact same result: yes" || echo "fact same result: no"
sed 's/^/RLlib,undivided,/' whole/curve.csv | grep -v nan >curve.csv
sed 's/^/RLlib,resumed,/' cut/curve.csv | grep -v nan >>curve.csv
