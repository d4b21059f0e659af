"""The commands of `lightning-ssl`: one file each, with `main(argv) -> exit code`."""
