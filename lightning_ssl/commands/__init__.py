"""The commands of `lightning-ssl`: one module each, with `main(argv) -> exit code`."""
