"""Starts a program by vfork: the child uses this process's memory until exec, so nothing is copied. Only the calling thread waits.

The child itself writes its pid to a file before its program runs, which os.posix_spawn cannot do.
"""

from libc.stdlib cimport calloc, free

cdef extern from *:
    """
    #include <errno.h>
    #include <fcntl.h>
    #include <sched.h>
    #include <signal.h>
    #include <stdint.h>
    #include <stdio.h>
    #include <sys/resource.h>
    #include <sys/wait.h>
    #include <unistd.h>

    typedef struct {
        char *cwd, *cores, *record, *born_in, *signals;
        char **paths, **argv, **envp;
        int files[3], groups[3], ours[7];
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
        for (const char *number = given->signals; *number; number++)
            sigaction(*number, &usual, NULL);
        if (setsid() < 0)
            return;
        for (const int *group = given->groups; *group >= 0; group++)
            if (write(*group, "0", 1) != 1)
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
        for (char **path = given->paths; *path; path++)
            if (access(*path, X_OK) == 0)  /* it costs half of an execve that fails */
                execve(*path, given->argv, given->envp);
    }

    __attribute__((noinline, noreturn)) static void fairlead_child(
        const fairlead_program *given, const sigset_t *mask, volatile int *failed)
    {
        fairlead_become(given, mask);
        *failed = 1;
        kill(getpid(), SIGKILL);  /* an exit status would be the program's */
        _exit(127);
    }

    /* As vfork, with a child that is born in a cgroup of version 2. Negative if the kernel has no such call, or forbids it.
       It has to be inlined: the child uses our stack, and may not return from a function that we return from, too. */
    __attribute__((always_inline)) static inline long fairlead_vfork_into(int group)
    {
        struct { uint64_t flags, unused[3], exit_signal, none[5], cgroup; } asked = {
            .flags = 0x200000000 | CLONE_VM | CLONE_VFORK, .exit_signal = SIGCHLD, .cgroup = group};
        long number = 435, pid = -ENOSYS;  /* clone3 */
    #if defined(__x86_64__)
        __asm__ volatile("syscall" : "=a"(pid) : "0"(number), "D"(&asked), "S"(sizeof asked) : "rcx", "r11", "memory");
    #elif defined(__aarch64__)
        register long x8 __asm__("x8") = number, x0 __asm__("x0") = (long)&asked, x1 __asm__("x1") = sizeof asked;
        __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1) : "memory");
        pid = x0;
    #endif
        return pid;
    }

    __attribute__((noinline)) static int fairlead_start(const fairlead_program *given)
    {
        volatile int failed = 0;
        sigset_t all, mask;
        sigfillset(&all);
        sigprocmask(SIG_SETMASK, &all, &mask);  /* no handler may run in the child */
        int born_in = *given->born_in ? open(given->born_in, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
        for (const int *way = given->ours; *way >= 0; way += 3)
            failed |= write(way[0], "0", 1) != 1;
        pid_t pid = failed ? -1 : *given->born_in ? fairlead_vfork_into(born_in) : vfork();
        if (pid == 0)
            fairlead_child(given, &mask, &failed);
        if (born_in >= 0)
            close(born_in);
        for (const int *way = given->ours; *way >= 0; way += 3)
            if (write(way[1], "0", 1) != 1 && write(way[2], "0", 1) != 1)
                break;  /* the next start takes it along */
        sigprocmask(SIG_SETMASK, &mask, NULL);
        if (failed && pid > 0)
            while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
                ;
        return failed || pid < 0 ? 0 : pid;
    }
    """
    ctypedef struct fairlead_program:
        char *cwd
        char *cores
        char *record
        char *born_in
        char *signals
        char **paths
        char **argv
        char **envp
        int files[3]
        int groups[3]
        int ours[7]
        size_t cores_size
        long most_files
        int spool
    int fairlead_start(const fairlead_program *) noexcept nogil


cdef char **c_strings(list words) except NULL:
    """Return an array of the words, which live as long as the list; to be freed."""
    cdef bytes word
    cdef char **found = <char **>calloc(len(words) + 1, sizeof(char *))
    if found == NULL:
        raise MemoryError
    for place in range(len(words)):
        word = words[place]
        found[place] = word
    return found


def start(
    list paths, bytes cwd, list argv, list env, list groups, list ours, bytes born_in, list files, bytes cores, bytes signals,
    long most_files, int spool, bytes record,
):
    """Start the first of `paths` that can be executed, in its own session. Return its pid, or 0 if anything failed.

    It joins cgroups by writing to the descriptors `groups`, two at most. The calling thread joins by the first of each three of
    `ours`, which the program inherits, and returns by the second, or else the third. With cgroups of version 2 it is born in the
    folder `born_in` instead.
    `files` become descriptors 0 to 2 and are none of these. `cores` is a CPU mask, empty for no change. `signals` are the numbers
    of those that get their default action. `most_files` is the soft limit of open files, -1 for no change. `record` with the pid
    and a bracket is written to `spool` before.
    """
    cdef fairlead_program given
    cdef int pid
    given.cwd, given.cores, given.record, given.born_in, given.signals = cwd, cores, record, born_in, signals
    given.cores_size, given.most_files, given.spool = len(cores), most_files, spool
    for place in range(3):
        given.files[place] = files[place]
    for place, file in enumerate((*groups, -1)):
        given.groups[place] = file
    for place, file in enumerate((*ours, -1)):
        given.ours[place] = file
    given.paths = given.argv = given.envp = NULL
    try:
        given.paths, given.argv, given.envp = c_strings(paths), c_strings(argv), c_strings(env)
        with nogil:
            pid = fairlead_start(&given)
        return pid
    finally:
        free(given.paths)
        free(given.argv)
        free(given.envp)
