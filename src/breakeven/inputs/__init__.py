"""Files that users write, read within bounds, with messages that name the file, the line and the key."""
