/* Put in front of a process by LD_PRELOAD: its wall clock is ahead by the seconds that the file $WALL_CLOCK_STEP holds, a long,
   read at every look at the clock. Its monotonic clocks are left alone. libfaketime does the same, but recurses under jemalloc. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile long *step;

__attribute__((constructor)) static void find_step(void) {
    int file = open(getenv("WALL_CLOCK_STEP"), O_RDONLY);
    void *found = mmap(NULL, sizeof *step, PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (found == MAP_FAILED) abort();
    step = found;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int failed = syscall(SYS_clock_gettime, clock, now);
    if (!failed && step && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += *step;
    return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    int failed = syscall(SYS_gettimeofday, now, zone);
    if (!failed && step) now->tv_sec += *step;
    return failed;
}

/* Some servers load modules with symbols of their own, RTLD_DEEPBIND, which would pass these functions by. */
void *dlopen(const char *file, int mode) {
    void *(*open_library)(const char *, int) = (void *(*)(const char *, int))dlsym(RTLD_NEXT, "dlopen");
    return open_library(file, mode & ~RTLD_DEEPBIND);
}

time_t time(time_t *told) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (told) *told = now.tv_sec;
    return now.tv_sec;
}
