// FastRPC's names for plain integers. C and C++.
#pragma once

#include <stdint.h>

typedef int AEEResult;
typedef uint32_t uint32;
// Not uint64_t: upstream's host code hands `unsigned long long *` to functions declared with `uint64 *`.
typedef unsigned long long uint64;
