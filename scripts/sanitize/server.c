/* Linked with the sanitizer's runtime: what a server needs to run on it. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>

/* The entries of jemalloc that malloc does not have. Who gets a block from jemalloc and hands it to the sanitizer's free ends. */

#define ZEROED 0x40 /* the one flag that shows in the block */

void *mallocx(size_t size, int flags) { return flags & ZEROED ? calloc(1, size) : malloc(size); }
void *rallocx(void *block, size_t size, int flags) { (void)flags; return realloc(block, size); }
void dallocx(void *block, int flags) { (void)flags; free(block); }
void sdallocx(void *block, size_t size, int flags) { (void)size, (void)flags; free(block); }
size_t nallocx(size_t size, int flags) { (void)flags; return size; }

/* Valkey loads modules so that they see their own libraries' functions before the sanitizer's, which it refuses. */

void *__interceptor_dlopen(const char *file, int mode);
void *dlopen(const char *file, int mode) { return __interceptor_dlopen(file, mode & ~RTLD_DEEPBIND); }
