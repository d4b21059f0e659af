#!/usr/bin/env bash
# Start the ranks of one trial with srun or torchrun, and pass a stop on to them.
#
#   deploy/launch.sh srun --ntasks-per-node=2 lightning-ssl fit …
#   deploy/launch.sh torchrun --standalone --nproc-per-node=4 --no-python lightning-ssl fit …
#
# A W&B agent stops a trial with SIGTERM. At SIGTERM srun kills its tasks at once, so they get SIGUSR1, which it
# forwards: they write a checkpoint and mark the run as preempted. torchrun forwards SIGTERM, but ends with code 1, which
# the agent counts as a failure of the trial. Here the script ends by the signal once the ranks have ended.
set -u

signal=TERM
[ "${1##*/}" = srun ] && signal=USR1
stopped=
trap 'stopped=1; kill -s "$signal" "$launcher"' TERM
"$@" &
launcher=$!
wait "$launcher"
code=$?
while kill -0 "$launcher" 2>/dev/null; do # a signal ends `wait` before the launcher has ended
    wait "$launcher"
    code=$?
done
if [ -n "$stopped" ]; then
    trap - TERM
    kill -TERM $$
fi
exit "$code"
