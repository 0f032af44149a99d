"""Everything that a function can claim to be, by the name that stands after `--as`.

To add an estimator write its kernel in `kernels/`, its loop twin in `reference/`, and one entry
here: in `returns.py` for estimators over time, in `losses.py` for losses and targets. `loopless
verify --as NAME` and the parity tests of the kernels take it from there.
"""

from loopless.verify.contracts.contract import Contract
from loopless.verify.contracts.losses import LOSS_CONTRACTS
from loopless.verify.contracts.returns import ESTIMATORS, RETURN_CONTRACTS, Estimator

__all__ = ["CONTRACTS", "ESTIMATORS", "Contract", "Estimator"]

CONTRACTS: dict[str, Contract] = {
    contract.name: contract for contract in (*RETURN_CONTRACTS, *LOSS_CONTRACTS)
}
