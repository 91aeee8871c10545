"""Starts a program by vfork: the child uses this process's memory until exec, so nothing is copied.

The child itself writes its pid to a file before its program runs, which os.posix_spawn cannot do.
"""

from libc.stdlib cimport calloc, free

cdef extern from *:
    """
    #include <errno.h>
    #include <sched.h>
    #include <signal.h>
    #include <stdio.h>
    #include <sys/resource.h>
    #include <sys/wait.h>
    #include <unistd.h>

    typedef struct {
        char *path, *cwd, *cores, *record;
        char **argv, **envp;
        int files[3];
        size_t cores_size;
        long most_files;
        int spool;
    } fairlead_program;

    /* Runs in the child, with its parent's memory: only system calls, no locks, in a frame of its own. Returns if one fails. */
    __attribute__((noinline)) static void fairlead_become(const fairlead_program *given, const sigset_t *mask)
    {
        struct sigaction usual = {.sa_handler = SIG_DFL};
        struct rlimit most;
        char line[128];
        for (int number = 1; number < NSIG; number++)
            sigaction(number, &usual, NULL);  /* some cannot be changed */
        if (setsid() < 0)
            return;
        if (given->cores_size && sched_setaffinity(0, given->cores_size, (const cpu_set_t *)given->cores) < 0)
            return;
        for (int place = 0; place < 3; place++)
            if (dup2(given->files[place], place) < 0)
                return;
        if (given->most_files >= 0) {
            if (getrlimit(RLIMIT_NOFILE, &most) < 0)
                return;
            most.rlim_cur = given->most_files;
            if (setrlimit(RLIMIT_NOFILE, &most) < 0)
                return;
        }
        if (chdir(given->cwd) < 0)
            return;
        int length = snprintf(line, sizeof line, "%s%d]\\n", given->record, (int)getpid());
        if (write(given->spool, line, length) != length)
            return;
        sigprocmask(SIG_SETMASK, mask, NULL);
        execve(given->path, given->argv, given->envp);
    }

    __attribute__((noinline)) static int fairlead_start(const fairlead_program *given)
    {
        volatile int failed = 0;
        sigset_t all, mask;
        sigfillset(&all);
        sigprocmask(SIG_SETMASK, &all, &mask);  /* no handler may run in the child */
        pid_t pid = vfork();
        if (pid == 0) {
            fairlead_become(given, &mask);
            failed = 1;
            kill(getpid(), SIGKILL);  /* an exit status would be the program's */
            _exit(127);
        }
        sigprocmask(SIG_SETMASK, &mask, NULL);
        if (failed)
            while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
                ;
        return failed || pid < 0 ? 0 : pid;
    }
    """
    ctypedef struct fairlead_program:
        char *path
        char *cwd
        char *cores
        char *record
        char **argv
        char **envp
        int files[3]
        size_t cores_size
        long most_files
        int spool
    int fairlead_start(const fairlead_program *) noexcept nogil


def start(bytes path, bytes cwd, list argv, list env, list files, bytes cores, long most_files, int spool, bytes record):
    """Start a program in its own session. Return its pid once it is executed, or 0 if anything failed.

    `files` become descriptors 0 to 2 and are none of these. `cores` is a CPU mask, empty for no change. `most_files` is the soft
    limit of open files, -1 for no change. `record` with the pid and a bracket is written to `spool` before.
    """
    cdef fairlead_program given
    cdef bytes word
    given.path, given.cwd, given.cores, given.record = path, cwd, cores, record
    given.cores_size, given.most_files, given.spool = len(cores), most_files, spool
    for place in range(3):
        given.files[place] = files[place]
    given.argv = <char **>calloc(len(argv) + 1, sizeof(char *))
    given.envp = <char **>calloc(len(env) + 1, sizeof(char *))
    try:
        if given.argv == NULL or given.envp == NULL:
            raise MemoryError
        for place in range(len(argv)):
            word = argv[place]
            given.argv[place] = word
        for place in range(len(env)):
            word = env[place]
            given.envp[place] = word
        return fairlead_start(&given)
    finally:
        free(given.argv)
        free(given.envp)
