"""The `rankscope` command: one module per subcommand."""
