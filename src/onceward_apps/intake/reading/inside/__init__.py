"""What runs in the confined child process, and only there."""
