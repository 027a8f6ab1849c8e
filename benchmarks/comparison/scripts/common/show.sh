# Sourced by the scripts of the tasks.
#
# show PATTERN COMMAND …       prints a command, its output that matches, and its exit status
# kill_when FILE COMMAND …      starts a command, and kills it with SIGKILL when FILE exists
# search_in PACKAGE PATTERN     counts the files of an installed package in which a pattern is found
# interrupt_when FILE COMMAND … starts a command, and presses Ctrl-C when FILE exists
#
# What the variable `small` has is shown as $small.
title() {
    local line="$*"
    [ -z "${small:-}" ] || line=${line//"$small"/\$small}
    echo "\$ $line"
}

show() {
    local pattern=$1
    shift
    title "$*"
    "$@" >show.txt 2>&1
    local status=$?
    tr '\r' '\n' <show.txt | sed 's/\x1b\[[0-9;]*m//g; s/[[:space:]]*$//' | grep -E -- "$pattern" |
        "${END:-tail}" -n "${LINES_SHOWN:-4}" | cut -c -120
    [ "$status" = 0 ] || echo "(exit status $status)"
    return "$status"
}

kill_when() {
    local file=$1
    shift
    title "$*  # kill -9 when there is $file"
    "$@" >killed.txt 2>&1 &
    local pid=$!
    while ! compgen -G "$file" >/dev/null && kill -0 "$pid" 2>/dev/null; do sleep 0.1; done
    sleep 1 # the file is complete
    kill -9 "$pid"
    wait "$pid" 2>/dev/null
}

interrupt_when() {
    local file=$1
    shift
    title "$*  # Ctrl-C when there is $file"
    set -m # else a command in the background ignores SIGINT
    "$@" >stopped.txt 2>&1 &
    local pid=$!
    set +m
    while ! compgen -G "$file" >/dev/null && kill -0 "$pid" 2>/dev/null; do sleep 0.1; done
    sleep 1
    kill -INT -- "-$pid" 2>/dev/null
    wait "$pid" 2>/dev/null
    echo "(exit status $?)"
}

search_in() {
    local folder
    folder=$(python -c "import importlib.util as u; print(u.find_spec('$1').submodule_search_locations[0])")
    echo "\$ grep -rliE '$2' $1 # in how many of its files?"
    echo "$(grep -rliE --include=*.py -- "$2" "$folder" | wc -l) of $(find "$folder" -name '*.py' | wc -l)"
}
