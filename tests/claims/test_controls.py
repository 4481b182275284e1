"""What holds for the controls of every claim."""

import pytest

from repro.suite import claims_folder, discover

CLAIMS = discover(claims_folder())


def direction(criterion):
    return criterion.at_least is not None, criterion.at_most is not None


@pytest.mark.parametrize("name", CLAIMS)
def test_every_control_runs_another_recipe(name):
    for protocol in CLAIMS[name].profiles.values():
        swaps = {(control.name, *pair) for control in protocol.controls for pair in control.swap.items()}
        assert not {s for s in swaps if protocol.cells[s[1]] == protocol.cells[s[2]]}


@pytest.mark.parametrize("name", CLAIMS)
def test_no_control_is_another_criterion_turned_round(name):
    """Else what rejects that criterion keeps the control from failing: the claim is inconclusive at most."""
    for protocol in CLAIMS[name].profiles.values():
        criteria = {c.name: c for c in protocol.criteria}
        assert not [
            control.name
            for control in protocol.controls
            for c in protocol.criteria
            if not c.premise and c.metric == criteria[control.criterion].metric
            if c.cell in control.swap.values() and c.rival is None
            if direction(c) != direction(criteria[control.criterion])
        ]
