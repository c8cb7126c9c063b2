"""Ways for a federation's bytes to travel, one file each; `fedlin.transports.transport` says what one must do."""
