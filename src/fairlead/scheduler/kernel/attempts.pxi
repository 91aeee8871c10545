"""Attempts as facts and engines name them (job, index and number, a column each), and the rows of the tables that they are.

An attempt is current if it is the latest of its task, and holds resources.
"""


def rows_of(const i64[::1] job, i64 first, const i64[::1] row_of_job):
    """The rows of jobs, NONE where there is none; `row_of_job[0]` is for the job with the number `first`."""
    found = np.empty(job.shape[0], np.int64)
    cdef i64[::1] rows = found
    for k in range(job.shape[0]):
        rows[k] = row_of_job[job[k] - first] if 0 <= job[k] - first < row_of_job.shape[0] else NONE
    return found


def current_tasks(
    View v, const i64[::1] job, const i64[::1] index, const i64[::1] number, i64 first, const i64[::1] row_of_job
):
    """The task rows of current attempts, NONE for others; `first` and `row_of_job` as in :func:`rows_of`."""
    found = rows_of(job, first, row_of_job)
    cdef i64[::1] tasks = found
    for k in range(job.shape[0]):
        row, tasks[k] = tasks[k], NONE
        if row != NONE and 0 <= index[k] < v.jobs[row].tasks:
            task = v.jobs[row].first + index[k]
            status = v.tasks[task].status
            if v.tasks[task].attempt == number[k] and PLACED <= status <= REVOKING:
                tasks[k] = task
    return found


def first_mentions(View v, const i64[::1] tasks, i64 status):
    """Where in the array each task row is first, in order: of those with this status, or of all with NONE. NONE is no row."""
    chosen = np.zeros(tasks.shape[0], np.uint8)
    cdef unsigned char[::1] is_chosen = chosen
    cdef i64[::1] order
    cdef bint rising = True
    last = NONE
    for k in range(tasks.shape[0]):
        if tasks[k] != NONE and (status == NONE or v.tasks[tasks[k]].status == status):
            is_chosen[k] = True
            rising &= tasks[k] > last
            last = tasks[k]
    if not rising:
        order = np.argsort(tasks, kind="stable")
        for k in range(1, order.shape[0]):
            if tasks[order[k]] == tasks[order[k - 1]]:
                is_chosen[order[k]] = False
    return np.flatnonzero(chosen)


def limited(View v, const i64[::1] rows):
    """Which of these jobs' tasks may run for so long only."""
    return np.array([k for k in range(rows.shape[0]) if v.jobs[rows[k]].time_limit < INFINITY], np.int64)


def chosen_attempts(View v, i64 count):
    """What a cycle placed, as columns: job, index, number and node.

    The second answer is whether there are jobs among them whose waiting tasks have gaps between: of those, neither index nor
    number is right yet.
    """
    found = np.empty((4, count), np.int64)
    cdef i64[:, ::1] columns = found
    cdef i64 *chosen = v.chosen
    cdef bint gaps = False
    for k in range(count):
        row, index = chosen[JOB * v.cols_chosen + k], chosen[INDEX * v.cols_chosen + k]
        number = 0
        if v.jobs[row].irregular:
            gaps = True
        else:
            number = v.tasks[v.jobs[row].first + index].attempt + 1
        columns[0, k], columns[1, k], columns[2, k] = v.jobs[row].id, index, number
        columns[3, k] = chosen[NODE * v.cols_chosen + k]
    return found, gaps
