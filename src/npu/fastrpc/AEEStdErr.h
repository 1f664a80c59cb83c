// FastRPC's error codes, those that upstream's host code and our guard compare with. C and C++.
#pragma once

#include "AEEStdDef.h"

#define AEE_EOFFSET 0

enum {
  AEE_SUCCESS = 0,
  AEE_EFAILED = AEE_EOFFSET + 1,
  AEE_ENOMEMORY = AEE_EOFFSET + 2,
  AEE_EUNABLETOLOAD = AEE_EOFFSET + 6,
  AEE_EEXPIRED = AEE_EOFFSET + 12,
  AEE_EBADPARM = AEE_EOFFSET + 14,
  AEE_ECONNRESET = AEE_EOFFSET + 104,
  AEE_EUNSUPPORTEDAPI = AEE_EOFFSET + 108,
  AEE_EWOULDBLOCK = AEE_EOFFSET + 516,
};
