"""All that a function can claim to be, by the name that stands after `--as`."""

from loopless.verify.contract import Contract
from loopless.verify.loss_contracts import LOSS_CONTRACTS
from loopless.verify.rollout_contracts import ROLLOUT_CONTRACTS

CONTRACTS: dict[str, Contract] = {
    contract.name: contract for contract in (*ROLLOUT_CONTRACTS, *LOSS_CONTRACTS)
}
