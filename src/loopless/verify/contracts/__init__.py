"""All that a function can claim to be, by the name that stands after `--as`."""

from loopless.verify.contracts.contract import Contract
from loopless.verify.contracts.losses import LOSS_CONTRACTS
from loopless.verify.contracts.rollouts import ROLLOUT_CONTRACTS

CONTRACTS: dict[str, Contract] = {
    contract.name: contract for contract in (*ROLLOUT_CONTRACTS, *LOSS_CONTRACTS)
}
