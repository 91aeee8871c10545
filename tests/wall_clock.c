/* Clocks that are set, for tests alone. Preloaded into a program, it adds seconds to what the machine's clocks show. The file
   WALL_CLOCK names has two 64-bit integers, which are read at each call: one for the wall clock, one for those since the boot.
   Who waits until a time on such a clock is woken then. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>

static volatile int64_t *seconds;
static int (*real)(clockid_t, struct timespec *);

__attribute__((constructor)) static void start(void) {
    const char *path = getenv("WALL_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    if (file >= 0) {
        void *page = mmap(0, 2 * sizeof *seconds, PROT_READ, MAP_SHARED, file, 0);
        seconds = page == MAP_FAILED ? 0 : page;
    }
}

static int64_t added(clockid_t clock) {
    return seconds ? seconds[clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE] : 0;
}

int clock_nanosleep(clockid_t clock, int flags, const struct timespec *until, struct timespec *left) {
    static int (*real_sleep)(clockid_t, int, const struct timespec *, struct timespec *);
    struct timespec moved = *until;
    real_sleep = (typeof(real_sleep))dlsym(RTLD_NEXT, "clock_nanosleep");
    if (flags & TIMER_ABSTIME) moved.tv_sec -= added(clock);
    return real_sleep(clock, flags, &moved, left);
}

int sem_clockwait(sem_t *semaphore, clockid_t clock, const struct timespec *until) {
    static int (*real_wait)(sem_t *, clockid_t, const struct timespec *);
    struct timespec moved = *until;
    real_wait = (typeof(real_wait))dlsym(RTLD_NEXT, "sem_clockwait");
    moved.tv_sec -= added(clock);
    return real_wait(semaphore, clock, &moved);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int failed = real(clock, now);
    if (!failed && seconds && clock != CLOCK_PROCESS_CPUTIME_ID && clock != CLOCK_THREAD_CPUTIME_ID)
        now->tv_sec += added(clock);
    return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec exact;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &exact)) return -1;
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *now) {
    struct timespec exact;
    clock_gettime(CLOCK_REALTIME, &exact);
    if (now) *now = exact.tv_sec;
    return exact.tv_sec;
}
