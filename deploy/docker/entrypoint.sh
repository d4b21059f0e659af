#!/bin/bash
# Runs a program of the image (`wandb agent …`, `torchrun …`, `bash`), or else a command of lightning-ssl (`fit …`).
# The words of the command are passed on unchanged.

# W&B's agent writes a file for each trial before it starts it. If it cannot, it takes the next trial, until the sweep
# has none left, and ends with exit code 0. So an agent is refused here.
words=("$@")
[ "${1##*/}" != launch.sh ] || words=("${@:2}")
if [ "${words[0]##*/} ${words[1]}" = "wandb agent" ]; then
    folder=$(realpath -m -- "${WANDB_DIR:-.}/wandb")
    until [ -e "$folder" ]; do folder=$(dirname -- "$folder"); done
    if ! [ -w "$folder" ] || ! [ -x "$folder" ]; then
        echo "entrypoint.sh: user $(id -u) cannot write to $folder, and an agent must: mount a folder that this user" \
            "can write to, or start the container as a user who can (--user)" >&2
        exit 2
    fi
fi

type -P -- "${1:-}" >/dev/null || set -- lightning-ssl "$@"
exec "$@"
