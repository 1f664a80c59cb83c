// The DSP's log macro. The host side has nothing to log to, so it logs nothing.
#pragma once

#ifdef __cplusplus
extern "C" {
#endif

// Null here: the generated stub tests the address before it logs.
void HAP_debug_v2(int level, const char* file, int line, const char* format, ...) __attribute__((weak));

#ifdef __cplusplus
}
#endif

#define FARF(level, ...) ((void)0)
