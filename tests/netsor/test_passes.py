"""A mini-batch runs the rows that it needs."""

from conftest import BEYOND_THEOREM
from stack_cases import COV

from infattn_nb import Program
from infattn_nb.netsor.passes import PassPlan
from infattn_nb.nonlinearities import tanh

pytestmark = BEYOND_THEOREM


def test_a_mini_batch_runs_its_own_rows():
    p = Program()
    F = p.readout() @ tanh(p.matrix() @ p.inputs(COV))
    plan = PassPlan(p, [F], 8)
    part = plan.part((F[1],), ())
    assert [h.k for h in part.nodes] == [3, 1, 1, 1]
    assert plan.part((F[1],), ()) is part
