/* Included before libregexp.c; see frame.h. */
#include "frame.h"
#include "libregexp.h"

#define lre_check_stack_overflow(opaque, size)                                                                        \
    __extension__({                                                                                                   \
        volatile char *room = BIG_FRAME;                                                                              \
        *room = 0;                                                                                                    \
        (lre_check_stack_overflow)(opaque, size);                                                                     \
    })
