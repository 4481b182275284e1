"""What is measured: accuracy, drift, operations, bytes, sequential depth and time."""
