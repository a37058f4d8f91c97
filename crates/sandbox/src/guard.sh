# shellcheck shell=sh
# Runs a program that must not outlive its owner: see process.rs.
#
#   sh guard.sh LOG GRACE FOLDER PROGRAM [ARGUMENT...]
#
# Stdin is a pipe that only the owner holds open. When it closes, the program gets TERM, and KILL after GRACE tenths of a
# second, and FOLDER (if not empty) is removed. The first line on stdout is the program's pid. The guard ends when the
# program does, with its status: 128+n if signal n killed it.

log=$1 grace=$2 folder=$3
shift 3

# A background command gets /dev/null as its stdin, so the pipe is kept as descriptor 3 for the watcher below.
exec 3<&0 </dev/null

# `exec`, so that the pid is the program's own and not that of a shell around it.
(exec "$@") 3<&- >>"$log" 2>&1 &
program=$!
echo "$program"
# The owner reads no further. The messages of the shell about killed jobs are not needed.
exec >/dev/null 2>&1

(
    # `read` rather than `cat`: a builtin leaves no process behind when this watcher is killed.
    while read -r _; do :; done <&3

    # The owner is gone. The TERM at the end of this script must not interrupt the clean-up.
    trap '' TERM
    kill -TERM "$program"
    # A stopped process would not receive the TERM.
    kill -CONT "$program"
    while [ "$grace" -gt 0 ] && kill -0 "$program"; do
        # Not every `sleep` accepts fractions.
        sleep 0.1 || sleep 1
        grace=$((grace - 1))
    done
    kill -0 "$program" && kill -KILL "$program"
    if [ -n "$folder" ]; then
        # Tries again, because an ending process may have written files during the first attempt.
        rm -rf "$folder" || { sleep 1 && rm -rf "$folder"; }
    fi
) &
watcher=$!
exec 3<&-

wait "$program"
status=$?
kill "$watcher"
exit "$status"
