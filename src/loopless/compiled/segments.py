"""Rows of the episodic buffer: where their segments end, and the list of their starts.

Called once for every row, or for many rows laid end to end, by `replay.host.episodic`: `mark` says
what a row holds, `place` where each row goes in the circle, and `enter` lists it there. Loop twin:
`reference.episodic`.
"""

# Numba's decorators change what a function's signature means:
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false, reportIndexIssue=false

import numpy as np

from loopless.compiled.jit import jit

PAIRS_OF_MARKS, EVERY_MARK, NO_MARK = 0, 1, 2  # which marks end a segment
SOUND, ODD_RUN, NO_START = 0, 1, 2  # what `mark` answers


@jit(contract=False)
def mark(marks, valid, lengths, convention, ahead, starts):
    """Write how many steps each step is before its segment's end, and each row's starts.

        n_t = end(t) − t,  end(t) the first segment end ≥ t

    A step with n_t > 0 is a start. `marks` and `valid` [steps] may be empty, for none and for all.
    Segment ends are the last step of a row, the marks that `convention` names (of a run of marks
    the 2nd, 4th, … if they come in pairs), every step that is not valid, and the step before it.
    Return SOUND, or what is wrong first, in which row, at which of its steps, and with how many
    marks.
    """
    begin = np.uint64(0)
    one = np.uint64(1)
    for row in range(lengths.size):
        length, run = np.uint64(lengths[row]), 0
        for k in range(length):
            t = begin + k
            marked = marks.size > 0 and marks[t]
            if marked:
                run += 1
            elif run % 2 == 1 and convention == PAIRS_OF_MARKS:
                return ODD_RUN, row, np.int64(k) - run, run
            else:
                run = 0
            is_end = k + one == length
            if marked and convention != NO_MARK:
                is_end |= convention == EVERY_MARK or run % 2 == 0
            if valid.size > 0:
                is_end |= not valid[t]
                is_end |= k + one < length and not valid[t + one]
            ahead[t] = np.int32(0) if is_end else np.int32(1)
        starts[row] = 0
        distance = np.int32(0)
        for k in range(length):
            t = begin + length - one - k
            distance = distance + np.int32(1) if ahead[t] else np.int32(0)
            ahead[t] = distance
            starts[row] += distance > 0
        begin += length
    for row in range(lengths.size):
        if starts[row] == 0:
            return NO_START, row, 0, 0
    return SOUND, 0, 0, 0


@jit(contract=False)
def place(position, lengths, capacity, begins):
    """Write where rows begin, one after the other from `position` on; return where the last ends.

    A row that would reach over the end of a lap begins with the next lap.
    """
    for row in range(lengths.size):
        rest = (capacity - position) % capacity
        if 0 < rest < lengths[row]:
            position += rest
        begins[row] = position
        position += lengths[row]
    return position


@jit(contract=False)
def rows_before(table, first, end, position):
    """Return how many of the rows `first` … `end` − 1 begin before `position`."""
    rows = 0
    while first + rows < end and table[0, first + rows] < position:
        rows += 1
    return rows


@jit(contract=False)
def count_steps(table, first, rows):
    """Return how many steps `rows` rows have, from number `first` on."""
    steps = 0
    for row in range(first, first + rows):
        steps += table[1, row] - table[0, row]
    return steps


@jit(contract=False)
def enter(table, weights, row, begin, lengths, starts, pairs, ahead):
    """List rows that lie side by side from position `begin` on, as number `row` and following.

    `table` [3, ≥ row + rows + 1] holds begins, ends and the number of starts before each row;
    `weights` [2, …] those of the rows and of their starts. Starts go to the ring `pairs`
    [capacity, (flat index, horizon)], in their order. Return how many steps the rows have.
    """
    capacity = np.uint64(pairs.shape[0])
    zero, one = np.uint64(0), np.uint64(1)
    flat = np.uint64(begin) % capacity
    to = np.uint64(table[2, row]) % capacity
    for t in range(np.uint64(ahead.size)):
        if ahead[t] > 0:
            pairs[to, zero] = np.int32(flat + t)
            pairs[to, one] = ahead[t]
            to += one
            if to == capacity:
                to = zero
    position = begin
    for r in range(lengths.size):
        table[0, row + r] = position
        position += lengths[r]
        table[1, row + r] = position
        table[2, row + r + 1] = table[2, row + r] + starts[r]
        weights[0, row + r], weights[1, row + r] = 1.0, starts[r]
    return position - begin
