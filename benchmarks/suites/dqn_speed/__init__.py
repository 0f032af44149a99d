"""The suite `training`: whole training loops against peers, in steps a second and in memory."""
