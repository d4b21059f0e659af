#!/bin/bash
# Runs a program of the image (`wandb agent …`, `torchrun …`, `bash`), or else a command of lightning-ssl (`fit …`).
# The words of the command are passed on unchanged.
type -P -- "${1:-}" >/dev/null || set -- lightning-ssl "$@"
exec "$@"
