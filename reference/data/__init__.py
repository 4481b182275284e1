"""Where real data lies, and the commands that fetch it. Nothing is made up, nothing is fetched unasked."""
