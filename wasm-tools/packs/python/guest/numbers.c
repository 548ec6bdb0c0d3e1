/* The logarithm of subnormal numbers: scaled up first, which is exact. The library that comes with the compiler scales
 * them, too, but then goes on with the old digits. */
#include <float.h>
#include <math.h>

double
skillcell_log2(double number)
{
    if (number > 0 && number < DBL_MIN)
        return log2(number * 0x1p54) - 54;
    return log2(number);
}
