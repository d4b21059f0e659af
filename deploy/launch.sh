#!/usr/bin/env bash
# Start the ranks of one trial with srun or torchrun, or an agent, and pass a stop on to them.
#
#   deploy/launch.sh srun --ntasks-per-node=2 lightning-ssl fit …
#   deploy/launch.sh torchrun --standalone --nproc-per-node=4 --no-python lightning-ssl fit …
#   deploy/launch.sh wandb agent --forward-signals ENTITY/PROJECT/ID
#
# A W&B agent stops a trial with SIGTERM, and `wandb agent --forward-signals` passes on SIGUSR1, SIGHUP and Ctrl-C too. At
# SIGTERM srun itself kills its tasks at once, so they get SIGUSR1, which it forwards: they write a checkpoint and mark
# the run as preempted. torchrun forwards SIGTERM, but ends with code 1, which the agent counts as a failure of the
# trial. An agent ends with code 0, as at the end of its sweep. This script ends by its signal once what it started has
# ended.
set -u
: "${1:?expected a command: launch.sh srun|torchrun|wandb …}"
export SLURM_KILL_BAD_EXIT=1  # srun: a rank that fails ends the others, which would wait for it
# torchrun: seconds for the checkpoint, after which it kills the ranks (its own default is 30)
export TORCH_ELASTIC_SHUTDOWN_TIMEOUT="${TORCH_ELASTIC_SHUTDOWN_TIMEOUT:-60}"

signal=TERM
[ "${1##*/}" = srun ] && signal=USR1
stopped=
launcher=
early=
# Only the first stop is passed on: SLURM sends SIGTERM to this script, to the agent, which forwards it, and to torchrun,
# which waits for no rank at its third signal. bash can run a trap within a trap, so the first stop replaces all traps.
# shellcheck disable=SC2329  # the traps call it
stop() {
    trap : TERM USR1 INT HUP
    [ -z "$stopped" ] || return
    stopped=$1
    if [ -n "$launcher" ]; then kill -s "$signal" "$launcher"; else early=yes; fi
}
trap 'stop TERM' TERM
trap 'stop USR1' USR1
trap 'stop INT' INT
trap 'stop HUP' HUP
"$@" &
launcher=$!
[ -z "$early" ] || kill -s "$signal" "$launcher" # a stop from before the launcher had a number
wait "$launcher"
code=$?
while kill -0 "$launcher" 2>/dev/null; do # a signal ends `wait` before the launcher has ended
    wait "$launcher"
    code=$?
done
if [ -n "$stopped" ]; then
    trap - "$stopped"
    kill -s "$stopped" $$
fi
exit "$code"
