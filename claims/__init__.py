"""The claims: one folder a paper, one file a claim (its variable `claim`), found by itself. Data only."""
