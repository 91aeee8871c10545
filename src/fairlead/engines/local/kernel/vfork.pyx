"""Starts programs by vfork: a child uses this process's memory until exec, so nothing is copied. The thread that starts it waits.

The thread that waits for a start makes it. While several are queued, threads without Python's lock make all but the last. The
child itself writes its pid to a file before its program runs, which os.posix_spawn cannot do.
"""

import os

cimport cython
from libc.stdlib cimport calloc, free
from posix.unistd cimport close

cdef extern from *:
    """
    #include <errno.h>
    #include <fcntl.h>
    #include <pthread.h>
    #include <sched.h>
    #include <signal.h>
    #include <stdint.h>
    #include <stdio.h>
    #include <sys/resource.h>
    #include <sys/wait.h>
    #include <unistd.h>

    /* `born_in` is -1 for no group of version 2. `pid` is valid once the start is `over`; 0 if it failed. */
    typedef struct fairlead_program {
        char *cwd, *cores, *record, *signals;
        char **paths, **argv, **envp;
        int files[3], groups[3], ours[7], born_in;
        size_t cores_size;
        long most_files;
        int spool, over;
        pid_t pid;
        struct fairlead_program *next;
    } fairlead_program;

    /* Runs in the child, with its parent's memory: only system calls, no locks, in a frame of its own. Returns if one fails. */
    __attribute__((noinline)) static void fairlead_become(const fairlead_program *given)
    {
        sigset_t none;
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
        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, NULL);
        for (char **path = given->paths; *path; path++)
            if (access(*path, X_OK) == 0)  /* it costs half of an execve that fails */
                execve(*path, given->argv, given->envp);
    }

    __attribute__((noinline, noreturn)) static void fairlead_child(const fairlead_program *given, volatile int *failed)
    {
        fairlead_become(given);
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

    __attribute__((noinline)) static pid_t fairlead_start(const fairlead_program *given)
    {
        volatile int failed = 0;
        sigset_t all, mask;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &mask);  /* no handler may run in the child */
        for (const int *way = given->ours; *way >= 0; way += 3)
            failed |= write(way[0], "0", 1) != 1;
        pid_t pid = failed ? -1 : given->born_in >= 0 ? fairlead_vfork_into(given->born_in) : vfork();
        if (pid == 0)
            fairlead_child(given, &failed);
        for (const int *way = given->ours; *way >= 0; way += 3)
            if (write(way[1], "0", 1) != 1 && write(way[2], "0", 1) != 1)
                break;  /* the next start takes it along */
        pthread_sigmask(SIG_SETMASK, &mask, NULL);
        if (failed && pid > 0)
            while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
                ;
        return failed || pid < 0 ? 0 : pid;
    }

    static pthread_mutex_t fairlead_lock = PTHREAD_MUTEX_INITIALIZER;
    static pthread_cond_t fairlead_more = PTHREAD_COND_INITIALIZER, fairlead_over = PTHREAD_COND_INITIALIZER;
    static fairlead_program *fairlead_first;  /* of those that nobody has begun to start */
    static int fairlead_threads;

    /* Start the first program that waits. The lock is held before and after. */
    static void fairlead_start_first(void)
    {
        fairlead_program *given = fairlead_first;
        fairlead_first = given->next;
        pthread_mutex_unlock(&fairlead_lock);
        pid_t pid = fairlead_start(given);
        pthread_mutex_lock(&fairlead_lock);
        given->pid = pid;
        given->over = 1;
        pthread_cond_broadcast(&fairlead_over);
    }

    static void *fairlead_start_all(void *unused)
    {
        sigset_t all;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, NULL);  /* signals are for others */
        pthread_mutex_lock(&fairlead_lock);
        for (;;)
            if (fairlead_first && fairlead_first->next)
                fairlead_start_first();
            else
                pthread_cond_wait(&fairlead_more, &fairlead_lock);
    }

    /* Have a program started, by a thread or by who waits for that first. With no threads, only by the latter. */
    static void fairlead_add(fairlead_program *given, int threads)
    {
        pthread_t thread;
        fairlead_program **end = &fairlead_first;
        pthread_mutex_lock(&fairlead_lock);
        if (fairlead_first && fairlead_threads < threads && pthread_create(&thread, NULL, fairlead_start_all, NULL) == 0)
            fairlead_threads += pthread_detach(thread) == 0;
        if (fairlead_first)
            pthread_cond_signal(&fairlead_more);
        while (*end)
            end = &(*end)->next;
        *end = given;
        pthread_mutex_unlock(&fairlead_lock);
    }

    static void fairlead_wait(fairlead_program *given)
    {
        pthread_mutex_lock(&fairlead_lock);
        while (!given->over)
            if (fairlead_first)
                fairlead_start_first();
            else
                pthread_cond_wait(&fairlead_over, &fairlead_lock);
        pthread_mutex_unlock(&fairlead_lock);
    }
    """
    ctypedef struct fairlead_program:
        char *cwd
        char *cores
        char *record
        char *signals
        char **paths
        char **argv
        char **envp
        int files[3]
        int groups[3]
        int ours[7]
        int born_in, spool, over, pid
        size_t cores_size
        long most_files
    void fairlead_add(fairlead_program *, int)
    void fairlead_wait(fairlead_program *) noexcept nogil


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


@cython.no_gc  # it is in no cycle, and what it holds outlives it
cdef class Start:
    """Starts the first of `paths` that can be executed, in its own session.

    It joins cgroups by writing to the descriptors `groups`, two at most. The thread that starts it joins by the first of each three
    of `ours`, which the program inherits, and returns by the second, or else the third. With cgroups of version 2 it is born in the
    folder `born_in` instead.
    `files` become descriptors 0 to 2 and are none of these. `cores` is a CPU mask, empty for no change. `signals` are the numbers
    of those that get their default action. `most_files` is the soft limit of open files, -1 for no change. `record` with the pid
    and a bracket is written to `spool` before. All descriptors stay open until `pid` returns one. At most `threads` start programs.
    """

    cdef fairlead_program given
    cdef tuple words

    def __init__(
        self, list paths, bytes cwd, list argv, list env, list groups, list ours, bytes born_in, list files, bytes cores,
        bytes signals, long most_files, int threads, int spool, bytes record,
    ):
        self.given.cwd, self.given.cores, self.given.record, self.given.signals = cwd, cores, record, signals
        self.given.cores_size, self.given.most_files, self.given.spool = len(cores), most_files, spool
        for place in range(3):
            self.given.files[place] = files[place]
        for place, file in enumerate((*groups, -1)):
            self.given.groups[place] = file
        for place, file in enumerate((*ours, -1)):
            self.given.ours[place] = file
        self.given.paths, self.given.argv, self.given.envp = c_strings(paths), c_strings(argv), c_strings(env)
        self.given.born_in = os.open(born_in, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC) if born_in else -1
        self.words = (paths, cwd, argv, env, cores, signals, record)
        fairlead_add(&self.given, threads)

    def pid(self, bint wait=True):
        """Return the pid once the program is executed, or 0 if anything failed; without `wait`, None if that is not known yet."""
        if not (wait or self.given.over):
            return None
        with nogil:
            fairlead_wait(&self.given)
        return self.given.pid

    def __dealloc__(self):
        if self.words is not None:
            fairlead_wait(&self.given)
            close(self.given.born_in)
        free(self.given.paths)
        free(self.given.argv)
        free(self.given.envp)
