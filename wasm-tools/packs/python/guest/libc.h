/* Read before every source of CPython (see stage_wasi): what the C library lacks or gets wrong, done right in paths.c and
 * numbers.c. */
#ifndef SKILLCELL_LIBC_H
#define SKILLCELL_LIBC_H

#include <math.h>
#include <sys/stat.h>

/* The folders above the preopened ones can be looked at. */
int skillcell_stat(const char *path, struct stat *found);
int skillcell_lstat(const char *path, struct stat *found);
int skillcell_mkdir(const char *path, mode_t mode);
/* The compiler's own loses most digits of subnormal numbers. */
double skillcell_log2(double number);

#define stat(path, found) skillcell_stat(path, found)
#define lstat(path, found) skillcell_lstat(path, found)
#define mkdir(path, mode) skillcell_mkdir(path, mode)
#define log2(number) skillcell_log2(number)

#endif
