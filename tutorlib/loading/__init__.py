"""Models and heads from files, packages and the hub, and files for other engines."""
